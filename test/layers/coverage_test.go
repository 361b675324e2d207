package layers_test

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"
)

var (
	// citedFile is a file that docs/coverage.md names, below vgpu, from the root of the repository, or as one beside the file named before it.
	citedFile = regexp.MustCompile("`([\\w./-]+\\.(?:go|c|h|def|md|sh|py|ya?ml|json))`")

	citedTest   = regexp.MustCompile(`\b(?:Test|Fuzz)[A-Z]\w*`)
	definedTest = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)
)

// testsOf returns the names of all Go tests of a tree.
func testsOf(tree fs.FS) (map[string]bool, error) {
	found := map[string]bool{}
	err := fs.WalkDir(tree, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(name, "_test.go") {
			return err
		}
		text, err := fs.ReadFile(tree, name)
		for _, m := range definedTest.FindAllSubmatch(text, -1) {
			found[string(m[1])] = true
		}
		return err
	})
	return found, err
}

// checkCoverage finds files and tests that the table of capabilities names and that do not exist.
func checkCoverage(tree fs.FS, text string, tests map[string]bool) []string {
	var found []string
	for number, line := range strings.Split(text, "\n") {
		folders := []string{".", "vgpu", "vgpu/node"}
		for _, m := range citedFile.FindAllStringSubmatch(line, -1) {
			ok := false
			for _, folder := range folders {
				if name := path.Join(folder, m[1]); exists(tree, name) {
					folders, ok = append(folders, path.Dir(name)), true
					break
				}
			}
			if !ok {
				found = append(found, fmt.Sprintf("docs/coverage.md:%d: %s does not exist", number+1, m[1]))
			}
		}
		for _, name := range citedTest.FindAllString(line, -1) {
			if !tests[name] {
				found = append(found, fmt.Sprintf("docs/coverage.md:%d: there is no %s", number+1, name))
			}
		}
	}
	return found
}

// TestCoverage checks that what the table of capabilities cites exists.
func TestCoverage(t *testing.T) {
	tree := os.DirFS("../..")
	tests, err := testsOf(tree)
	if err != nil {
		t.Fatal(err)
	}
	text, err := fs.ReadFile(tree, "docs/coverage.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, bad := range checkCoverage(tree, string(text), tests) {
		t.Error(bad)
	}
}

func TestBadCoverage(t *testing.T) {
	tree := fstest.MapFS{"vgpu/token/a.go": {}, "vgpu/token/b.go": {}, "vgpu/token/a_test.go": {Data: []byte("func TestA(t *testing.T) {}\n")}}
	tests, err := testsOf(tree)
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct{ line, want string }{
		"all exist":       {"| DI-1 | x | `token/a.go`, `b.go` (`Name`) | `token/a_test.go` TestA |", ""},
		"from the root":   {"| DI-1 | x | `vgpu/token/a.go` | |", ""},
		"no such file":    {"| DI-1 | x | `token/c.go` | TestA |", "token/c.go does not exist"},
		"in no folder":    {"| DI-1 | x | `b.go` | TestA |", "b.go does not exist"},
		"no such test":    {"| DI-1 | x | `token/a.go` | TestB |", "there is no TestB"},
		"a kind of tests": {"| DI-1 | Tests of the rule | `token/a.go` | TestA |", ""},
	} {
		t.Run(name, func(t *testing.T) { expect(t, checkCoverage(tree, test.line, tests), test.want) })
	}
}
