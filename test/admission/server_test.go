package admission_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	yamls "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"sigs.k8s.io/yaml"

	"github.com/gshare-dev/gshare/manifests"
	"github.com/gshare-dev/gshare/vgpu/kube"
)

// cluster is the tests' client of the API server.
type cluster struct {
	*kubernetes.Clientset
	config *rest.Config
	ctx    context.Context
}

func connect(t *testing.T, config *rest.Config) *cluster {
	t.Helper()
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 4*time.Minute)
	t.Cleanup(cancel)
	return &cluster{Clientset: client, config: config, ctx: ctx}
}

// namespace creates a namespace with labels.
func (c *cluster) namespace(t *testing.T, name string, labels map[string]string) {
	t.Helper()
	namespace := &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
	if _, err := c.CoreV1().Namespaces().Create(c.ctx, namespace, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// try returns the pod as the API server would store it, or the error with which it refuses the pod.
func (c *cluster) try(namespace string, p *v1.Pod) (*v1.Pod, error) {
	return c.CoreV1().Pods(namespace).Create(c.ctx, p, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
}

// install applies the policies as kustomize would, except the one with the defaults, and waits until each is in force, which takes about a
// second.
func (c *cluster) install(t *testing.T) {
	t.Helper()
	for name, file := range base(t) {
		if name != defaults {
			c.apply(t, file)
		}
	}
	for name, p := range map[string]*v1.Pod{
		"gshare-share":     pod(limits("sm=9999")),
		"gshare-isolation": pod(hostPID),
		"gshare-slo":       pod(says("class", "slo")),
	} {
		kube.Complete(p) // gshare-share would refuse an incomplete pod
		c.eventually(t, name, func() (bool, error) {
			_, err := c.try("default", p)
			return err != nil && strings.Contains(err.Error(), name), err
		})
	}
}

// defaults is the file of the policy that fills in what pods omit.
const defaults = "defaults.yaml"

// installDefaults applies the policy that fills in what pods omit, and waits until it is in force.
func (c *cluster) installDefaults(t *testing.T, file []byte) {
	t.Helper()
	c.apply(t, file)
	c.eventually(t, "gshare-defaults", func() (bool, error) {
		got, err := c.try("default", pod())
		return err == nil && got.Spec.SchedulerName == "gshare", err
	})
}

// eventually waits until the condition holds. The condition's second result explains a failure to the reader of the test's log.
func (c *cluster) eventually(t *testing.T, what string, is func() (bool, error)) {
	t.Helper()
	var saw error
	err := wait.PollUntilContextTimeout(c.ctx, 100*time.Millisecond, time.Minute, true, func(context.Context) (ok bool, _ error) {
		ok, saw = is()
		return ok, nil
	})
	if err != nil {
		t.Fatalf("%s is not in force after a minute; the last pod was answered with: %v", what, saw)
	}
}

// base returns the files that the kustomization lists, by name.
func base(t *testing.T) map[string][]byte {
	t.Helper()
	var kustomization struct{ Resources []string }
	content := read(t, "kustomization.yaml")
	if err := yaml.Unmarshal(content, &kustomization); err != nil {
		t.Fatal(err)
	}
	files, err := manifests.Admission.ReadDir("admission")
	if err != nil || len(files) != len(kustomization.Resources)+1 {
		t.Fatalf("the kustomization lists %v of the files %v (%v)", kustomization.Resources, files, err)
	}
	contents := map[string][]byte{}
	for _, name := range kustomization.Resources {
		contents[name] = read(t, name)
	}
	return contents
}

func read(t *testing.T, name string) []byte {
	t.Helper()
	content, err := manifests.Admission.ReadFile("admission/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// apply creates the objects of a file.
func (c *cluster) apply(t *testing.T, file []byte) {
	t.Helper()
	if err := c.create(t, file); err != nil {
		t.Fatal(err)
	}
}

// create creates the objects of a file. The API server compiles all expressions of a policy at that time, and refuses the policy if one does not
// compile.
func (c *cluster) create(t *testing.T, file []byte) error {
	t.Helper()
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(discovery.NewDiscoveryClientForConfigOrDie(c.config)))
	client := dynamic.NewForConfigOrDie(c.config)
	decoder := yamls.NewYAMLOrJSONDecoder(bytes.NewReader(file), 4096)
	for {
		object := &unstructured.Unstructured{}
		if err := decoder.Decode(object); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		kind := object.GroupVersionKind()
		mapping, err := mapper.RESTMapping(kind.GroupKind(), kind.Version)
		if err != nil {
			return err
		}
		if _, err := client.Resource(mapping.Resource).Create(c.ctx, object, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("create %s %s: %w", kind.Kind, object.GetName(), err)
		}
	}
}
