package install_test

import (
	"strings"
	"sync"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/restmapper"

	config "github.com/gshare-dev/gshare/vgpu/api/config/node"
)

// dryRun returns the error with which the API server refuses an object, where unknown and repeated fields are errors.
// Namespaces are really created.
func dryRun(t *testing.T, o *unstructured.Unstructured) error {
	t.Helper()
	options := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict}
	if o.GetKind() == "Namespace" {
		options.DryRun = nil // otherwise objects in the namespace could not be tried
	}
	return create(t, o, options)
}

// create creates an object unless it exists.
func create(t *testing.T, o *unstructured.Unstructured, options metav1.CreateOptions) error {
	t.Helper()
	kind := o.GroupVersionKind()
	mapping, err := mapper().RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		return err
	}
	if mapping.Scope.Name() == meta.RESTScopeNameRoot {
		o.SetNamespace("")
	}
	_, err = dynamic.NewForConfigOrDie(server).Resource(mapping.Resource).Namespace(o.GetNamespace()).Create(t.Context(), o, options)
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// mapper maps kinds to the server's resources. It is created once, since discovery takes long.
var mapper = sync.OnceValue(func() meta.RESTMapper {
	return restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(discovery.NewDiscoveryClientForConfigOrDie(server)))
})

func TestServerTakesThem(t *testing.T) {
	for _, folder := range kustomizations {
		for _, o := range build(t, folder) {
			if o.GroupVersionKind().Group == "monitoring.coreos.com" {
				continue // a kind of the Prometheus operator, which is not installed here; test/monitoring tests the rules
			}
			if err := dryRun(t, o); err != nil {
				t.Errorf("%s: %s: %v", folder, key(o), err)
			}
		}
	}
}

// TestServerRefuses is the negative control: a misspelt field of an object of each component is refused.
func TestServerRefuses(t *testing.T) {
	for _, o := range build(t, "manifests") {
		if o.GetKind() != "Deployment" && o.GetKind() != "DaemonSet" {
			continue
		}
		if err := unstructured.SetNestedField(o.Object, true, "spec", "template", "spec", "hostNet"); err != nil {
			t.Fatal(err)
		}
		if err := dryRun(t, o); err == nil || !strings.Contains(err.Error(), "hostNet") {
			t.Errorf("%s with an unknown field: %v", key(o), err)
		}
	}
}

// TestAgentReadsIt: the agent accepts its configuration of every overlay.
func TestAgentReadsIt(t *testing.T) {
	found := 0
	for _, folder := range kustomizations {
		for _, o := range build(t, folder) {
			text, present, _ := unstructured.NestedString(o.Object, "data", "node.yaml")
			if !present {
				continue
			}
			found++
			if c, err := config.Decode([]byte(text)); err != nil || c.Kubernetes.Hook == "" {
				t.Errorf("%s: %v, hook %q", folder, err, c.Kubernetes.Hook)
			}
		}
	}
	if found < 4 {
		t.Errorf("%d configurations", found)
	}
}
