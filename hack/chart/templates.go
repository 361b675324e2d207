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

// folder is where the chart is.
const folder = "manifests/chart"

// parts are the kustomize bases that have a template of their own; what is in none of them is the namespace.
var parts = []string{"admission", "scheduler", "node"}

// optional are the folders outside of the base. Their templates are rendered if the value of the same name is true.
var optional = []string{"monitoring", "web"}

// templates returns the files of the chart that follow from the bases, by their names in it.
func templates(root string) (map[string][]byte, error) {
	partOf, err := owners(root)
	if err != nil {
		return nil, err
	}
	all, err := build(root, "base")
	if err != nil {
		return nil, err
	}
	m := marker{seen: map[string]int{}}
	texts := map[string][]string{}
	for _, r := range all.Resources() {
		part, ok := partOf[id(r)]
		if !ok {
			part = "namespace"
		}
		texts[part] = append(texts[part], m.object(r))
	}
	for _, part := range optional {
		objects, err := build(root, part)
		if err != nil {
			return nil, err
		}
		for _, r := range objects.Resources() {
			texts[part] = append(texts[part], m.object(r))
		}
	}
	if err := m.complete(); err != nil {
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
		b.WriteString(when(slices.Contains(optional, part), part, strings.Join(objects, "---\n")))
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

// owners returns, for every object of the parts, the part it belongs to.
func owners(root string) (map[string]string, error) {
	of := map[string]string{}
	for _, part := range parts {
		objects, err := build(root, part)
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

// build returns what kubectl kustomize prints for a folder of manifests.
func build(root, name string) (resmap.ResMap, error) {
	objects, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), filepath.Join(root, "manifests", name))
	if err != nil {
		return nil, fmt.Errorf("build %s: %w", name, err)
	}
	return objects, nil
}
