package main

import (
	"os"
	"regexp"
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

// TestReadmeNamesCommands: README.md names each command that is not for a cluster with gshare, and docs/cli.md describes all.
func TestReadmeNamesCommands(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, cmd := range root().Commands() {
		if cmd.GroupID == inCluster.title || cmd.GroupID == inServing.title {
			continue
		}
		if !regexp.MustCompile("(?:`|gshare )" + cmd.Name() + "[ `\\n]").Match(readme) {
			t.Errorf("README.md does not name the command %s of gshare", cmd.Name())
		}
	}
}
