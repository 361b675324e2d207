package main

import (
	"strings"
	"testing"
)

// TestVersionFlag: gshare --version prints the version, as gshare-node --version does.
func TestVersionFlag(t *testing.T) {
	var out strings.Builder
	cmd := root()
	cmd.SetArgs([]string{"--version"})
	cmd.SetOut(&out)
	if err := cmd.Execute(); err != nil || !strings.HasPrefix(out.String(), "gshare version ") {
		t.Errorf("%v: %q", err, out.String())
	}
}
