package install_test

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

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

// TestKubectl: kubectl takes every command of the documents, and the files that they name are there.
func TestKubectl(t *testing.T) {
	all, named := commands(t, "kubectl"), 0
	for _, c := range all {
		if err := c.Check(kubectlCommand(io.Discard)); err != nil {
			t.Errorf("%v: %v", c, err)
		}
		for i, word := range c.Words[:len(c.Words)-1] {
			if slices.Contains([]string{"-k", "-f", "--patch-file"}, word) {
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

// TestMake: the Makefile has every target that the documents name.
func TestMake(t *testing.T) {
	makefile, err := os.ReadFile(root + "Makefile")
	if err != nil {
		t.Fatal(err)
	}
	has := func(target string) bool {
		return regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(target) + `:`).Match(makefile)
	}
	for _, c := range commands(t, "make") {
		for _, word := range c.Words[1:] {
			if !strings.Contains(word, "=") && !has(word) { // the others are variables
				t.Errorf("%v: no target %s", c, word)
			}
		}
	}
	if has("demoo") || !has("demo") {
		t.Error("the check sees no targets")
	}
}

// TestGo: the packages that the documents build and test are there.
func TestGo(t *testing.T) {
	for _, c := range commands(t, "go") {
		if err := c.Check(goCommand()); err != nil {
			t.Errorf("%v: %v", c, err)
		}
		for _, word := range c.Words[1:] {
			if files, _ := filepath.Glob(root + word + "/*.go"); strings.HasPrefix(word, "./") && len(files) == 0 {
				t.Errorf("%v: no package %s", c, word)
			}
		}
	}
}

// goCommand has what the documents use of go.
func goCommand() *cobra.Command {
	cmd, run := &cobra.Command{Use: "go"}, func(*cobra.Command, []string) {}
	build := &cobra.Command{Use: "build", Run: run}
	build.Flags().StringP("output", "o", "", "")
	cmd.AddCommand(build, &cobra.Command{Use: "test", Run: run}, &cobra.Command{Use: "run", Run: run})
	return cmd
}

// TestDocker: the Dockerfile has the stages that the documents build, and the folders that it copies from.
func TestDocker(t *testing.T) {
	dockerfile, err := os.ReadFile(root + "Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range commands(t, "docker") {
		cmd, stage := &cobra.Command{Use: "docker"}, ""
		build := &cobra.Command{Use: "build", Args: cobra.ExactArgs(1), Run: func(*cobra.Command, []string) {}}
		build.Flags().StringVar(&stage, "target", "", "")
		build.Flags().StringP("tag", "t", "", "")
		build.Flags().StringArray("build-arg", nil, "")
		cmd.AddCommand(build)
		if err := c.Check(cmd); err != nil || !strings.Contains(string(dockerfile), fmt.Sprintf(" AS %s\n", stage)) {
			t.Errorf("%v: %v, or no stage %q", c, err, stage)
		}
	}
}
