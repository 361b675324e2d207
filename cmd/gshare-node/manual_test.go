package main

import (
	"testing"

	"github.com/gshare-dev/gshare/cmd/internal/test/manual"
)

// TestManual: docs/cli.md describes the commands and flags of gshare-node as they are.
func TestManual(t *testing.T) { manual.Check(t, command()) }
