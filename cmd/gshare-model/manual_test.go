package main

import (
	"testing"

	"github.com/gshare-dev/gshare/cmd/internal/test/manual"
	"github.com/gshare-dev/gshare/cmd/internal/test/wrong"
)

// TestManual: docs/cli.md describes the commands and flags of gshare-model as they are.
func TestManual(t *testing.T) {
	for _, variable := range []string{"HOST", "PORT"} { // a default is made of them
		t.Setenv(variable, "")
	}
	manual.Check(t, command())
}

// TestWrongValues: what no flag can be is answered with exit code 2 and without errors for programmers.
func TestWrongValues(t *testing.T) {
	wrong.Program{Root: command, ParserOnly: true}.Try(t)
}
