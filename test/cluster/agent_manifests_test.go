package cluster_test

import (
	"bytes"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/restmapper"

	"github.com/gshare-dev/gshare/test/cluster"
	"github.com/gshare-dev/gshare/test/controlplane/access"
)

// apply creates the objects of a manifest.
func apply(t *testing.T, c *cluster.Cluster, manifest []byte) {
	t.Helper()
	ctx := testContext(t)
	client, err := dynamic.NewForConfig(c.Config(access.Admin))
	if err != nil {
		t.Fatal(err)
	}
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(c.Client().Discovery()))
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(manifest), 4096)
	for {
		object := &unstructured.Unstructured{}
		if err := decoder.Decode(object); err != nil {
			return // end of the manifest
		}
		if len(object.Object) == 0 {
			continue
		}
		kind := object.GroupVersionKind()
		mapping, err := mapper.RESTMapping(kind.GroupKind(), kind.Version)
		if err != nil {
			t.Fatal(err)
		}
		var resources dynamic.ResourceInterface = client.Resource(mapping.Resource)
		if namespace := object.GetNamespace(); namespace != "" {
			resources = client.Resource(mapping.Resource).Namespace(namespace)
		}
		if _, err := resources.Create(ctx, object, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatalf("create %s %s: %v", kind.Kind, object.GetName(), err)
		}
	}
}
