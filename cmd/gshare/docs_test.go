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

// TestPagesNameCommands: the pages that list the commands of gshare leave none out, and the manual of operators none of a cluster.
func TestPagesNameCommands(t *testing.T) {
	pages := map[string]string{}
	for _, page := range []string{"README.md", "cmd/README.md", "docs/operate.md"} {
		text, err := os.ReadFile("../../" + page)
		if err != nil {
			t.Fatal(err)
		}
		pages[page] = string(text)
	}
	rows := func(page, heading string) string {
		_, text, _ := strings.Cut(pages[page], "\n## "+heading+"\n")
		text, _, _ = strings.Cut(text, "\n## ")
		var first strings.Builder
		for _, row := range regexp.MustCompile(`(?m)^\| ([^|]*) \|`).FindAllStringSubmatch(text, -1) {
			first.WriteString(row[1] + "\n")
		}
		return first.String()
	}
	check := func(where, text, name string) {
		if !regexp.MustCompile("(?:`|gshare )" + name + "(?:[ `\\n]|$)").MatchString(text) {
			t.Errorf("%s does not name the command %s of gshare", where, name)
		}
	}
	for _, g := range groups() {
		for _, cmd := range g.commands {
			check("README.md", pages["README.md"], cmd.Name())
			check("the table of cmd/README.md, gshare,", rows("cmd/README.md", "gshare"), cmd.Name())
			if g.where == inCluster || g.where == inServing {
				check("docs/operate.md, Inspect the cluster,", rows("docs/operate.md", "Inspect the cluster"), cmd.Name())
			}
		}
	}
}
