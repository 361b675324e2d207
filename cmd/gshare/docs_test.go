package main

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/gshare-dev/gshare/test/install/document"
)

// TestDocuments: gshare takes every command that the documents show of it.
func TestDocuments(t *testing.T) {
	commands, err := document.Commands("../..", "gshare")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range commands {
		if err := c.Check(root()); err != nil {
			t.Errorf("%v: %v", c, err)
		}
	}
	if len(commands) < 10 {
		t.Errorf("only %d commands", len(commands))
	}
}

// TestPagesNameCommands: docs/operate.md has a row for each command of a cluster, and README.md names all others.
func TestPagesNameCommands(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	manual, err := os.ReadFile("../../docs/operate.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(manual), "\n## Inspect the cluster\n")
	table, _, _ = strings.Cut(table, "\n## ")
	rows := strings.Join(regexp.MustCompile(`(?m)^\| [^|]* \|`).FindAllString(table, -1), "\n")
	for _, g := range groups() {
		page, text := "README.md", string(readme)
		if g.where == inCluster || g.where == inServing {
			page, text = "docs/operate.md, Inspect the cluster,", rows
		}
		for _, cmd := range g.commands {
			if !regexp.MustCompile("(?:`|gshare )" + cmd.Name() + "[ `\\n]").MatchString(text) {
				t.Errorf("%s does not name the command %s of gshare", page, cmd.Name())
			}
		}
	}
}
