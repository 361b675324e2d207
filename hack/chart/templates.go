package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/resmap"
	"sigs.k8s.io/kustomize/api/resource"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

// chartDir is the directory of the Helm chart in the repository.
const chartDir = "manifests/chart"

// requiredBases are the kustomize bases that become one template each. The chart puts objects of manifests/base that are in none of them
// into the template "namespace".
var requiredBases = []string{"admission", "scheduler", "node"}

// optionalBases are the kustomize directories outside manifests/base. The chart renders each of them only if the Helm value of the same
// name is true.
var optionalBases = []string{"monitoring", "web"}

// templates returns the contents of the chart's generated files by their paths in the chart.
func templates(root string) (map[string][]byte, error) {
	partOf, err := basesOfObjects(root)
	if err != nil {
		return nil, err
	}
	all, err := buildBase(root, "base")
	if err != nil {
		return nil, err
	}
	m := templater{seen: map[string]int{}}
	texts := map[string][]string{}
	for _, r := range all.Resources() {
		part, ok := partOf[id(r)]
		if !ok {
			part = "namespace"
		}
		texts[part] = append(texts[part], m.template(r))
	}
	for _, part := range optionalBases {
		objects, err := buildBase(root, part)
		if err != nil {
			return nil, err
		}
		for _, r := range objects.Resources() {
			texts[part] = append(texts[part], m.template(r))
		}
	}
	if err := m.checkCounts(); err != nil {
		return nil, err
	}
	return files(root, texts)
}

func files(root string, texts map[string][]string) (map[string][]byte, error) {
	config, err := os.ReadFile(filepath.Join(root, "manifests/node/node.yaml"))
	out := map[string][]byte{"files/node.yaml": config}
	for part, objects := range texts {
		var b bytes.Buffer
		b.WriteString("# Written by hack/chart from manifests/" + source(part) + "; make chart.\n")
		b.WriteString(renderedIf(slices.Contains(optionalBases, part), part, strings.Join(objects, "---\n")))
		out["templates/"+part+".yaml"] = b.Bytes()
	}
	return out, err
}

func source(part string) string {
	if part == "namespace" {
		return "base"
	}
	return part
}

// basesOfObjects returns the name of the kustomize base that contains each Kubernetes object.
func basesOfObjects(root string) (map[string]string, error) {
	of := map[string]string{}
	for _, part := range requiredBases {
		objects, err := buildBase(root, part)
		if err != nil {
			return nil, err
		}
		for _, r := range objects.Resources() {
			of[id(r)] = part
		}
	}
	return of, nil
}

func id(r *resource.Resource) string { return r.GetKind() + " " + r.GetNamespace() + "/" + r.GetName() }

// buildBase returns the objects that "kubectl kustomize" prints for a directory below manifests.
func buildBase(root, name string) (resmap.ResMap, error) {
	objects, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), filepath.Join(root, "manifests", name))
	if err != nil {
		return nil, fmt.Errorf("build %s: %w", name, err)
	}
	return objects, nil
}
