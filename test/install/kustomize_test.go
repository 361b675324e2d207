package install_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gshare-dev/gshare/test/install/manifest"
)

const root = "../../"

// kustomizations lists all kustomizations that users may apply.
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

// TestTopIsAll: the documented command installs every object of every component.
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

// TestOlder: the components for Kubernetes 1.35 change the policy with the defaults and its binding, and nothing else.
func TestOlder(t *testing.T) {
	for folder, version := range map[string]string{"kubernetes-1.35": "", "kubernetes-1.35-v1beta1": "admissionregistration.k8s.io/v1beta1"} {
		t.Run(folder, func(t *testing.T) {
			want := map[string]*unstructured.Unstructured{}
			for _, o := range append(build(t, "manifests/base"), build(t, "manifests/older")...) {
				if o.GetName() != "gshare-defaults" {
					want[key(o)] = o
				} else if version != "" {
					o.SetAPIVersion(version)
					want[key(o)] = o
				}
			}
			got := map[string]*unstructured.Unstructured{}
			for _, o := range build(t, "test/install/testdata/"+folder) {
				got[key(o)] = o
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("-base +overlay:\n%s", diff)
			}
		})
	}
}
