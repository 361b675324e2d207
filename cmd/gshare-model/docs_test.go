package main

import (
	"testing"

	"github.com/gshare-dev/gshare/test/install/document"
)

// TestDocuments: gshare-model takes every command that the documents show of it.
func TestDocuments(t *testing.T) {
	commands, err := document.Commands("../..", "gshare-model")
	if err != nil {
		t.Fatal(err)
	}
	if len(commands) == 0 {
		t.Error("the documents show none")
	}
	for _, c := range commands {
		if err := c.Check(command()); err != nil {
			t.Errorf("%v: %v", c, err)
		}
	}
}
