// Command chart writes the Helm chart's templates from the kustomize bases, so that there is one source: make chart.
package main

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/resmap"
	"sigs.k8s.io/kustomize/api/resource"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

func main() {
	if err := writeTemplates("."); err != nil {
		fmt.Fprintln(os.Stderr, "chart:", err)
		os.Exit(1)
	}
}

// writeTemplates writes the generated files of the Helm chart into a checkout of the repository.
func writeTemplates(root string) error {
	files, err := templates(root)
	if err != nil {
		return err
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(root, chartDir, name), content, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// chartDir is the directory of the Helm chart in the repository.
const chartDir = "manifests/chart"

// requiredBases are the kustomize bases that become one template each. The chart puts objects of manifests/base that are in none of them
// into the template "namespace".
var requiredBases = []string{"admission", "scheduler", "node"}

// optionalBases are the kustomize directories outside manifests/base. The chart renders each of them only under its condition.
var optionalBases = map[string]string{
	"claims":     ".Values.claims",
	"monitoring": ".Values.monitoring",
	"older":      `ternary (semverCompare "<1.37-0" .Capabilities.KubeVersion.Version) .Values.olderKubelets (eq (toString .Values.olderKubelets) "auto")`,
	"serving":    ".Values.serving.enabled", // not .serving itself, which may get further values
	"web":        ".Values.web",
}

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
	add := func(part string, r *resource.Resource) error {
		text, err := m.template(r)
		texts[part] = append(texts[part], text)
		return err
	}
	for _, r := range all.Resources() {
		part, ok := partOf[id(r)]
		if !ok {
			part = "namespace"
		}
		if err := add(part, r); err != nil {
			return nil, err
		}
	}
	for _, part := range slices.Sorted(maps.Keys(optionalBases)) {
		objects, err := buildBase(root, part)
		if err != nil {
			return nil, err
		}
		for _, r := range objects.Resources() {
			if err := add(part, r); err != nil {
				return nil, err
			}
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
		b.WriteString(renderedIf(optionalBases[part], strings.Join(objects, "---\n")))
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

// substitution replaces a text of the kustomize bases by a Helm template expression.
type substitution struct {
	written  string // regular expression of the text to replace
	template string
	times    int // how often the text occurs
}

// agentConfig is the template expression of the node agent's configuration: the Helm value config, or else the file of the kustomize base.
const agentConfig = `(.Values.config | default (dict "node.yaml" (.Files.Get "files/node.yaml")))`

var substitutions = []substitution{
	{`gshare-node:dev`, `{{ .Values.images.node }}`, 3},
	{`gshare-scheduler:dev`, `{{ .Values.images.scheduler }}`, 1},
	{`gshare-controller:dev`, `{{ .Values.images.controller }}`, 1},
	{`gshare-gateway:dev`, `{{ .Values.images.gateway }}`, 1},
	{`(?m)^( +)nodeSelector:\n +gshare\.dev/gpus: "true"$`, "${1}nodeSelector: {{ toJson .Values.nodeSelector }}\n" +
		"$1{{- with .Values.runtimeClassName }}\n${1}runtimeClassName: {{ . }}\n$1{{- end }}", 1},
	{`(?m)^data:\n  node\.yaml: \|\n(?:    .*\n)+`, "data: {{ toJson " + agentConfig + " }}\n", 1},
	// The programs that have the flag --feature-gates: the JSON {"Swap":true} becomes Swap=true.
	{`(?m)^( +)- args:\n((?: +- .*\n)+)( +command:\n +- gshare-(?:node|scheduler|controller|gateway)\n +env:)$`, "${1}- args:\n${2}" +
		"${1}  {{- with .Values.featureGates }}\n${1}  - --feature-gates={{ toJson . | replace `\"` \"\" | replace \":\" \"=\" | trimAll \"{}\" }}\n${1}  {{- end }}\n${3}", 4},
	// A change of the configuration changes this name, which rolls out the agents, as with kustomize.
	{`gshare-node-config-[a-z0-9]{10}`, "gshare-node-config-{{ toJson " + agentConfig + " | sha256sum | trunc 10 }}", 2},
}

// templater turns Kubernetes objects into Helm templates, and counts how often it applied each substitution.
type templater struct{ seen map[string]int }

// keepOnDelete makes Helm leave an object in the cluster that is no longer in the release. Without it, a rollback to a release without serving
// would delete the CustomResourceDefinitions, and with them every function of every namespace.
var keepOnDelete = map[string]string{"helm.sh/resource-policy": "keep"}

// template returns the Helm template of a Kubernetes object: its YAML with all substitutions applied.
func (m *templater) template(r *resource.Resource) (string, error) {
	if r.GetKind() == "CustomResourceDefinition" {
		annotations := r.GetAnnotations()
		maps.Copy(annotations, keepOnDelete)
		if err := r.SetAnnotations(annotations); err != nil {
			return "", fmt.Errorf("annotate %s: %w", r.GetName(), err)
		}
	}
	text := strings.ReplaceAll(r.MustYaml(), "{{", `{{ "{{" }}`)
	for _, v := range substitutions {
		pattern := regexp.MustCompile(v.written)
		m.seen[v.written] += len(pattern.FindAllString(text, -1))
		text = pattern.ReplaceAllString(text, v.template)
	}
	switch {
	case r.GetName() == "gshare-slo":
		text = renderedIf(".Values.policies.slo", text)
	case strings.HasPrefix(r.GetKind(), "MutatingAdmissionPolicy"):
		text = setDefaultsVersion + renderedIf(`ne $version "none"`, strings.Replace(text, admissionGroup+"v1\n", admissionGroup+"{{ $version }}\n", 1))
	}
	return text, nil
}

// admissionGroup is the API of admission policies, without its version.
const admissionGroup = "apiVersion: admissionregistration.k8s.io/"

// setDefaultsVersion sets $version to the version of mutating admission policies: that of the Helm value, or else that of the cluster. Helm
// knows which kinds a cluster serves only if it can reach the cluster.
const setDefaultsVersion = "{{- $version := .Values.policies.defaults | default \"auto\" }}\n" +
	"{{- if eq $version \"auto\" }}\n" +
	"{{- $beta := .Capabilities.APIVersions.Has \"admissionregistration.k8s.io/v1beta1/MutatingAdmissionPolicy\" }}\n" +
	"{{- $version = ternary \"v1\" (ternary \"v1beta1\" \"none\" $beta) (semverCompare \">=1.36-0\" .Capabilities.KubeVersion.Version) }}\n" +
	"{{- end }}\n"

// checkCounts returns an error unless every text that a Helm value replaces was found as often as expected. Without this check, a text that
// no longer occurs in the kustomize bases would silently leave its value without effect.
func (m *templater) checkCounts() error {
	for _, v := range substitutions {
		if n := m.seen[v.written]; n != v.times {
			return fmt.Errorf("the kustomize bases contain %s %d times, want %d", v.written, n, v.times)
		}
	}
	return nil
}

// renderedIf returns a template that Helm renders only under a condition, or the text as it is without one.
func renderedIf(condition, text string) string {
	if condition == "" {
		return text
	}
	return "{{- if " + condition + " }}\n" + text + "{{- end }}\n"
}
