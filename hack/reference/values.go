package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"sigs.k8s.io/kustomize/kyaml/yaml"
)

const valuesFile = "manifests/chart/values.yaml"

// value is a value of the Helm chart.
type value struct{ name, standard, text string }

// valuesPage returns docs/values.md.
func valuesPage(root string) (string, error) {
	text, err := os.ReadFile(filepath.Join(root, valuesFile))
	if err != nil {
		return "", err
	}
	values, err := valuesOf(string(text))
	if err != nil {
		return "", fmt.Errorf("%s: %w", valuesFile, err)
	}
	var page strings.Builder
	page.WriteString("# Values of the Helm chart\n\nWritten from the source by `make reference`. How to install the chart, and to set values: [install.md](install.md). " +
		"What has no value here is as in the kustomize bases; what else has to be changed is a patch of an overlay.\n\n| Value | Default | Meaning |\n|---|---|---|\n")
	for _, v := range values {
		page.WriteString(row("`"+v.name+"`", "`"+v.standard+"`", v.text))
	}
	return page.String(), nil
}

// valuesOf returns the values in a file with their comments. A map whose keys have no comments counts as one value. It returns an error for a
// value without a comment.
func valuesOf(text string) ([]value, error) {
	parsed, err := yaml.Parse(text)
	if err != nil {
		return nil, err
	}
	var values []value
	var add func(prefix string, node *yaml.Node) error
	add = func(prefix string, node *yaml.Node) error {
		for i := 0; i+1 < len(node.Content); i += 2 {
			key, child := node.Content[i], node.Content[i+1]
			name := prefix + key.Value
			comment := commentOf(key, child)
			switch {
			case child.Kind == yaml.MappingNode && hasComments(child):
				if err := add(name+".", child); err != nil {
					return err
				}
			case comment == "":
				return fmt.Errorf("%s has no comment in its line", name)
			default:
				values = append(values, value{name, flowText(child), comment})
			}
		}
		return nil
	}
	if err := add("", parsed.YNode()); err != nil {
		return nil, err
	}
	if len(values) == 0 {
		return nil, fmt.Errorf("no values")
	}
	return values, nil
}

// commentOf returns the comment on the line of a key.
func commentOf(nodes ...*yaml.Node) string {
	for _, n := range nodes {
		if c := strings.TrimSpace(strings.TrimPrefix(n.LineComment, "#")); c != "" {
			return c
		}
	}
	return ""
}

// hasComments reports whether any key of a map has a comment.
func hasComments(node *yaml.Node) bool {
	for i := 0; i+1 < len(node.Content); i += 2 {
		if commentOf(node.Content[i], node.Content[i+1]) != "" {
			return true
		}
	}
	return false
}

// flowText returns a value as YAML on one line.
func flowText(node *yaml.Node) string {
	switch {
	case node.Kind == yaml.MappingNode:
		var pairs []string
		for i := 0; i+1 < len(node.Content); i += 2 {
			pairs = append(pairs, node.Content[i].Value+": "+flowText(node.Content[i+1]))
		}
		return "{" + strings.Join(pairs, ", ") + "}"
	case node.Style == yaml.DoubleQuotedStyle:
		return `"` + node.Value + `"`
	}
	return node.Value
}
