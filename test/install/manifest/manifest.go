// Package manifest builds gshare's Kubernetes manifests and checks them for what a careful administrator would not install.
package manifest

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

// Build returns the objects that kubectl kustomize prints for a folder of the repository.
func Build(root, folder string) ([]*unstructured.Unstructured, error) {
	objects, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), filepath.Join(root, folder))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", folder, err)
	}
	text, err := objects.AsYaml()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", folder, err)
	}
	return Parse(string(text))
}

// Parse decodes the objects of a YAML text. Empty documents are skipped.
func Parse(text string) (all []*unstructured.Unstructured, err error) {
	decoder := yaml.NewYAMLOrJSONDecoder(strings.NewReader(text), 4096)
	for {
		var raw runtime.RawExtension
		if err := decoder.Decode(&raw); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, err
		}
		if len(raw.Raw) == 0 || string(raw.Raw) == "null" {
			continue
		}
		o := &unstructured.Unstructured{}
		if err := o.UnmarshalJSON(raw.Raw); err != nil {
			return nil, err
		}
		all = append(all, o)
	}
}

// Key returns the kind, namespace and name of an object, which identify it in a cluster.
func Key(o *unstructured.Unstructured) string {
	return o.GetKind() + " " + o.GetNamespace() + "/" + o.GetName()
}
