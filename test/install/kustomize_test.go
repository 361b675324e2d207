package install_test

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gshare-dev/gshare/test/install/manifest"
)

const root = "../../"

// kustomizations lists all kustomizations that a user may apply.
var kustomizations = []string{
	"manifests", "manifests/base", "manifests/admission", "manifests/node", "manifests/scheduler", "manifests/monitoring",
	"manifests/serving", "manifests/web", "manifests/rebalance", "manifests/overlays/kind", "manifests/overlays/example", "manifests/overlays/serving", "test/install/testdata/web",
}

func build(t *testing.T, folder string) []*unstructured.Unstructured {
	t.Helper()
	objects, err := manifest.Build(root, folder)
	if err != nil {
		t.Fatal(err)
	}
	return objects
}

func key(o *unstructured.Unstructured) string { return manifest.Key(o) }

// TestTopIsAll: the one command installs every object of every part.
func TestTopIsAll(t *testing.T) {
	have := map[string]bool{}
	for _, o := range build(t, "manifests") {
		have[key(o)] = true
	}
	for _, folder := range []string{"manifests/admission", "manifests/node", "manifests/scheduler"} {
		for _, o := range build(t, folder) {
			if !have[key(o)] {
				t.Errorf("%s of %s is not in manifests", key(o), folder)
			}
		}
	}
	if len(have) < 20 {
		t.Errorf("only %d objects", len(have))
	}
}
