package install_test

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

const root = "../../"

// kustomizations are all that somebody may apply.
var kustomizations = []string{
	"manifests", "manifests/base", "manifests/admission", "manifests/node", "manifests/scheduler", "manifests/monitoring",
	"manifests/overlays/kind", "manifests/overlays/example",
}

// build is what kubectl kustomize prints for a folder.
func build(t *testing.T, folder string) []*unstructured.Unstructured {
	t.Helper()
	objects, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), root+folder)
	if err != nil {
		t.Fatalf("%s: %v", folder, err)
	}
	var all []*unstructured.Unstructured
	for _, r := range objects.Resources() {
		text, err := r.AsYAML()
		if err != nil {
			t.Fatal(err)
		}
		object := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(text, &object.Object); err != nil {
			t.Fatal(err)
		}
		all = append(all, object)
	}
	return all
}

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

func key(o *unstructured.Unstructured) string {
	return o.GetKind() + " " + o.GetNamespace() + "/" + o.GetName()
}
