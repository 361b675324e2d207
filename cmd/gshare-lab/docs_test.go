package main

import (
	"testing"

	"github.com/gshare-dev/gshare/test/install/document"
)

// TestDocuments: gshare-lab takes every command that the documents show of it.
func TestDocuments(t *testing.T) {
	commands, err := document.Commands("../..", "gshare-lab")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range commands {
		if err := c.Check(root()); err != nil {
			t.Errorf("%v: %v", c, err)
		}
	}
}
