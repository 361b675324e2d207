package main

import (
	"fmt"
	"regexp"
	"strings"

	"sigs.k8s.io/kustomize/api/resource"
)

// value is a place in the bases where the chart has a value.
type value struct {
	written  string // a pattern of what the bases say
	template string
	times    int // how often it is there; 0 is any number but none
}

// configured is the agent's configuration: the values', or the file of the base.
const configured = `(.Values.config | default (dict "node.yaml" (.Files.Get "files/node.yaml")))`

var values = []value{
	{`gshare-system`, `{{ .Values.namespace }}`, 0},
	{`gshare-node:dev`, `{{ .Values.images.node }}`, 2},
	{`gshare-scheduler:dev`, `{{ .Values.images.scheduler }}`, 1},
	{`(?m)^( +)nodeSelector:\n +gshare\.dev/gpus: "true"$`, "${1}nodeSelector: {{ toJson .Values.nodeSelector }}\n" +
		"$1{{- with .Values.runtimeClassName }}\n${1}runtimeClassName: {{ . }}\n$1{{- end }}", 1},
	{`(?m)^data:\n  node\.yaml: \|\n(?:    .*\n)+`, "data: {{ toJson " + configured + " }}\n", 1},
	// Another configuration rolls the agents, as with kustomize.
	{`gshare-node-config-[a-z0-9]{10}`, "gshare-node-config-{{ toJson " + configured + " | sha256sum | trunc 10 }}", 2},
}

// marker puts the values in, and counts.
type marker struct{ seen map[string]int }

// object returns the template of an object.
func (m *marker) object(r *resource.Resource) string {
	text := strings.ReplaceAll(r.MustYaml(), "{{", `{{ "{{" }}`)
	for _, v := range values {
		pattern := regexp.MustCompile(v.written)
		m.seen[v.written] += len(pattern.FindAllString(text, -1))
		text = pattern.ReplaceAllString(text, v.template)
	}
	return when(r.GetName() == "gshare-slo", "policies.slo", text)
}

// complete returns an error unless every value is used: one that the bases no longer contain would be lost silently.
func (m *marker) complete() error {
	for _, v := range values {
		if n := m.seen[v.written]; n == 0 || v.times != 0 && n != v.times {
			return fmt.Errorf("the bases say %s %d times, not %d", v.written, n, v.times)
		}
	}
	return nil
}

// when makes what is optional depend on a value.
func when(optional bool, name, text string) string {
	if !optional {
		return text
	}
	return "{{- if .Values." + name + " }}\n" + text + "{{- end }}\n"
}
