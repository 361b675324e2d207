// Command reference writes the reference pages of docs from the source, so that they cannot lag behind it: make reference.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

func main() {
	if err := write("."); err != nil {
		fmt.Fprintln(os.Stderr, "reference:", err)
		os.Exit(1)
	}
}

// write writes the reference pages into a checkout of the repository.
func write(root string) error {
	all, err := pages(root)
	if err != nil {
		return err
	}
	for name, text := range all {
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// references are the pages, by their paths in the repository.
var references = map[string]func(root string) (string, error){
	"docs/metrics.md":       metricsPage,
	"docs/configuration.md": configurationPage,
	"docs/annotations.md":   namesPage,
	"docs/events.md":        eventsPage,
	"docs/alerts.md":        alertsPage,
	"docs/values.md":        valuesPage,
}

// pages returns the texts of the reference pages by their paths in the repository.
func pages(root string) (map[string]string, error) {
	all := map[string]string{}
	for name, page := range references {
		text, err := page(root)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		all[name] = text
	}
	return all, nil
}

// row returns a row of a Markdown table.
func row(cells ...string) string {
	for i, c := range cells {
		cells[i] = strings.ReplaceAll(strings.Join(strings.Fields(c), " "), "|", `\|`)
	}
	return "| " + strings.Join(cells, " | ") + " |\n"
}
