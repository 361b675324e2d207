package helm_test

import (
	"encoding/json"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"

	"github.com/gshare-dev/gshare/test/controlplane"
	"github.com/gshare-dev/gshare/test/controlplane/access"
	"github.com/gshare-dev/gshare/test/install/document"
	"github.com/gshare-dev/gshare/test/install/manifest"
)

// TestDocuments runs all helm commands in the documentation, in their order, on a real API server: they install, upgrade, roll
// back and uninstall.
func TestDocuments(t *testing.T) {
	plane, err := controlplane.Start(t.Context(), controlplane.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := plane.Stop(); err != nil {
			t.Error(err)
		}
	})
	commands, err := document.Commands(root, "helm")
	if err != nil {
		t.Fatal(err)
	}
	server, own := plane.Config(access.Admin), render(t, overlays["a cluster of one's own"].values...)
	if len(own) < 20 {
		t.Fatalf("only %d objects", len(own))
	}
	var done []string
	for _, c := range commands {
		if _, err := helm(t, plane.Kubeconfig(access.Admin), c.Words[1:]...); err != nil {
			t.Fatalf("%s: %v", c.File, err)
		}
		done = append(done, c.Words[1])
		if c.Words[1] == "install" {
			checkThere(t, server, own)
		}
	}
	if strings.Join(done, " ") != "install upgrade rollback uninstall" {
		t.Errorf("the documents go through %v", done)
	}
	for _, o := range own {
		left, err := get(t, server, o)
		if gone := apierrors.IsNotFound(err); !gone && (err != nil || left.GetDeletionTimestamp() == nil) {
			t.Errorf("%s is left: %v", manifest.Key(o), err) // a namespace stays Terminating, since no controller runs here
		}
	}
}

// checkThere checks that every object exists with its spec and data.
func checkThere(t *testing.T, server *rest.Config, want []*unstructured.Unstructured) {
	t.Helper()
	for _, o := range want {
		got, err := get(t, server, o)
		if err != nil {
			t.Errorf("%s: %v", manifest.Key(o), err)
			continue
		}
		if !within(got.Object["spec"], o.Object["spec"]) || !within(got.Object["data"], o.Object["data"]) {
			text, _ := json.Marshal(got)
			t.Errorf("%s is another: %s", manifest.Key(o), text)
		}
	}
}

// within reports whether got contains everything in want. It may have more, since the API server adds defaults.
func within(got, want any) bool {
	switch want := want.(type) {
	case map[string]any:
		have, ok := got.(map[string]any)
		for k, v := range want {
			ok = ok && within(have[k], v)
		}
		return ok
	case []any:
		have, ok := got.([]any)
		ok = ok && len(have) == len(want)
		for i := 0; ok && i < len(want); i++ {
			ok = within(have[i], want[i])
		}
		return ok
	case nil:
		return true
	}
	return got == want
}

func get(t *testing.T, server *rest.Config, o *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	t.Helper()
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(discovery.NewDiscoveryClientForConfigOrDie(server)))
	kind := o.GroupVersionKind()
	mapping, err := mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		t.Fatal(err)
	}
	return dynamic.NewForConfigOrDie(server).Resource(mapping.Resource).Namespace(o.GetNamespace()).Get(t.Context(), o.GetName(), metav1.GetOptions{})
}
