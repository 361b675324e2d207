package install_test

import (
	"io"
	"os"
	"slices"
	"testing"

	"github.com/gshare-dev/gshare/test/install/document"
)

func commands(t *testing.T, program string) []document.Command {
	t.Helper()
	all, err := document.Commands(root, program)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestKubectl: kubectl accepts every documented command, and the files that the commands name exist.
func TestKubectl(t *testing.T) {
	all, named := commands(t, "kubectl"), 0
	for _, c := range all {
		if err := c.Check(kubectlCommand(io.Discard)); err != nil {
			t.Errorf("%v: %v", c, err)
		}
		for i, word := range c.Words[:len(c.Words)-1] {
			if slices.Contains([]string{"-k", "-f", "--patch-file"}, word) && elsewhere[c.Words[i+1]] == "" {
				named++
				if _, err := os.Stat(root + c.Words[i+1]); err != nil {
					t.Errorf("%v: %v", c, err)
				}
			}
		}
	}
	if len(all) < 20 || named < 4 {
		t.Errorf("only %d commands, which name %d files", len(all), named)
	}
	wrong := document.Command{Words: []string{"kubectl", "get", "pods", "--selektor", "x"}}
	if wrong.Check(kubectlCommand(io.Discard)) == nil {
		t.Error("a flag that kubectl has not passes")
	}
}
