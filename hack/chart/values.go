package main

import (
	"fmt"
	"regexp"
	"strings"

	"sigs.k8s.io/kustomize/api/resource"
)

// substitution replaces a text of the kustomize bases by a Helm template expression.
type substitution struct {
	written  string // a pattern of what the bases say
	template string
	times    int // how often it is there; 0 is any number but none
}

// agentConfig is the template expression of the node agent's configuration: the Helm value config, or else the file of the kustomize base.
const agentConfig = `(.Values.config | default (dict "node.yaml" (.Files.Get "files/node.yaml")))`

var substitutions = []substitution{
	{`gshare-system`, `{{ .Values.namespace }}`, 0},
	{`gshare-node:dev`, `{{ .Values.images.node }}`, 2},
	{`gshare-scheduler:dev`, `{{ .Values.images.scheduler }}`, 1},
	{`(?m)^( +)nodeSelector:\n +gshare\.dev/gpus: "true"$`, "${1}nodeSelector: {{ toJson .Values.nodeSelector }}\n" +
		"$1{{- with .Values.runtimeClassName }}\n${1}runtimeClassName: {{ . }}\n$1{{- end }}", 1},
	{`(?m)^data:\n  node\.yaml: \|\n(?:    .*\n)+`, "data: {{ toJson " + agentConfig + " }}\n", 1},
	// Another configuration rolls the agents, as with kustomize.
	{`gshare-node-config-[a-z0-9]{10}`, "gshare-node-config-{{ toJson " + agentConfig + " | sha256sum | trunc 10 }}", 2},
}

// templater turns Kubernetes objects into Helm templates, and counts how often it applied each substitution.
type templater struct{ seen map[string]int }

// template returns an object as YAML with all substitutions applied.
func (m *templater) template(r *resource.Resource) string {
	text := strings.ReplaceAll(r.MustYaml(), "{{", `{{ "{{" }}`)
	for _, v := range substitutions {
		pattern := regexp.MustCompile(v.written)
		m.seen[v.written] += len(pattern.FindAllString(text, -1))
		text = pattern.ReplaceAllString(text, v.template)
	}
	return renderedIf(r.GetName() == "gshare-slo", "policies.slo", text)
}

// checkCounts returns an error unless every substitution was applied as often as expected. Without this check, a text that no longer occurs
// in the bases would silently leave its Helm value without effect.
func (m *templater) checkCounts() error {
	for _, v := range substitutions {
		if n := m.seen[v.written]; n == 0 || v.times != 0 && n != v.times {
			return fmt.Errorf("the bases say %s %d times, not %d", v.written, n, v.times)
		}
	}
	return nil
}

// renderedIf returns a template that Helm renders only if a value is true. It returns the text unchanged unless it is optional.
func renderedIf(optional bool, name, text string) string {
	if !optional {
		return text
	}
	return "{{- if .Values." + name + " }}\n" + text + "{{- end }}\n"
}
