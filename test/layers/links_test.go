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
	codeBlock = regexp.MustCompile("(?ms)^ *```.*?^ *```")
	linkInMD  = regexp.MustCompile(`\]\(([^)\s#:]+)(?:#[^)\s]*)?\)`) // to a file, not to a URL with a scheme
)

// checkLinks finds links on a page that lead to no file of the repository. hack/site checks the links of docs, including those to
// headings.
func checkLinks(tree fs.FS, name, text string) []string {
	var found []string
	for _, m := range linkInMD.FindAllStringSubmatch(codeBlock.ReplaceAllString(text, ""), -1) {
		if !exists(tree, path.Join(path.Dir(name), m[1])) {
			found = append(found, fmt.Sprintf("%s: %s does not exist", name, m[1]))
		}
	}
	return found
}

// TestLinks enforces that links between files of the repository work, even on pages that are not documentation, such as results.
func TestLinks(t *testing.T) {
	tree, pages := os.DirFS(root), 0
	err := fs.WalkDir(tree, ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && name != "." && !visible(entry.Name()):
			return fs.SkipDir
		case entry.IsDir() || path.Ext(name) != ".md":
			return nil
		}
		text, err := fs.ReadFile(tree, name)
		pages++
		for _, violation := range checkLinks(tree, name, string(text)) {
			t.Error(violation)
		}
		return err
	})
	if err != nil || pages < 50 {
		t.Errorf("%d pages, %v", pages, err)
	}
}

func TestBadLinks(t *testing.T) {
	tree := fstest.MapFS{"docs/adr/0001-a.md": {}, "test/README.md": {}}
	for text, want := range map[string]string{
		"[a](../docs/adr/0001-a.md#b)":         "",
		"[all](../docs/adr)":                   "",
		"[here](#b), [there](https://x.io/a)":  "",
		"```\n[a](gone.md)\n```":               "",
		"[a](../docs/adr/0001-b.md)":           "test/R.md: ../docs/adr/0001-b.md does not exist",
		"[a](README.md) and [b](gone.md#part)": "test/R.md: gone.md does not exist",
	} {
		if got := strings.Join(checkLinks(tree, "test/R.md", text), "; "); got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}
