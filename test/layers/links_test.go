package layers_test

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"unicode"
)

var (
	codeBlock = regexp.MustCompile("(?ms)^ *```.*?^ *```")
	linkInMD  = regexp.MustCompile(`\]\(([^)\s#:]*)(?:#([^)\s]*))?\)`) // to a file, not to a URL with a scheme
	heading   = regexp.MustCompile(`(?m)^#+ +(.*?) *$`)
	linked    = regexp.MustCompile(`\[([^]]*)\]\([^)]*\)`)
)

// checkLinks finds links on a page that lead to no file of the repository, or to no heading of a page.
func checkLinks(tree fs.FS, name, text string) []string {
	var found []string
	for _, m := range linkInMD.FindAllStringSubmatch(codeBlock.ReplaceAllString(text, ""), -1) {
		to := name
		if m[1] != "" {
			to = path.Join(path.Dir(name), m[1])
		}
		if m[1] != "" && !exists(tree, to) {
			found = append(found, fmt.Sprintf("%s: %s does not exist", name, m[1]))
			continue
		}
		target := text
		if to != name {
			content, _ := fs.ReadFile(tree, to) // nothing for a folder
			target = string(content)
		}
		if m[2] != "" && !slices.Contains(anchors(target), m[2]) {
			found = append(found, fmt.Sprintf("%s: %s has no heading #%s", name, to, m[2]))
		}
	}
	return found
}

// anchors returns the identifiers that GitHub gives the headings of a page.
func anchors(text string) (all []string) {
	for _, m := range heading.FindAllStringSubmatch(codeBlock.ReplaceAllString(text, ""), -1) {
		id := strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case r == '-', r == '_', unicode.IsLetter(r), unicode.IsDigit(r):
				return unicode.ToLower(r)
			}
			return -1
		}, linked.ReplaceAllString(m[1], "$1"))
		unique := id
		for n := 1; slices.Contains(all, unique); n++ {
			unique = fmt.Sprintf("%s-%d", id, n)
		}
		all = append(all, unique)
	}
	return all
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
	tree := fstest.MapFS{"docs/adr/0001-a.md": {Data: []byte("# `A b`\n\n## B\n\n```\n# in code\n```\n\n## B\n")}, "test/README.md": {}}
	for text, want := range map[string]string{
		"[a](../docs/adr/0001-a.md#b)":              "",
		"[all](../docs/adr)":                        "",
		"## B\n[here](#b), [there](https://x.io/a)": "",
		"[here](#b)":                                "test/R.md: test/R.md has no heading #b",
		"[a](../docs/adr/0001-a.md#a-b)":            "",
		"[a](../docs/adr/0001-a.md#b-1)":            "",
		"[a](../docs/adr/0001-a.md#c)":              "test/R.md: docs/adr/0001-a.md has no heading #c",
		"[a](../docs/adr/0001-a.md#in-code)":        "test/R.md: docs/adr/0001-a.md has no heading #in-code",
		"[all](../docs/adr#b)":                      "test/R.md: docs/adr has no heading #b",
		"```\n[a](gone.md)\n```":                    "",
		"[a](../docs/adr/0001-b.md)":                "test/R.md: ../docs/adr/0001-b.md does not exist",
		"[a](README.md) and [b](gone.md#part)":      "test/R.md: gone.md does not exist",
	} {
		if got := strings.Join(checkLinks(tree, "test/R.md", text), "; "); got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}
