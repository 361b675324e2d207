package main

import (
	"testing"

	"github.com/gshare-dev/gshare/cmd/internal/cli/manual"
)

// TestManual: docs/cli.md describes the commands and flags of gshare-model as they are.
func TestManual(t *testing.T) {
	for _, variable := range []string{"HOST", "PORT"} { // a default is made of them
		t.Setenv(variable, "")
	}
	manual.Check(t, command())
}
