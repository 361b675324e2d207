package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
)

// TestRepository: the documentation of this repository becomes a site, in which no link is broken.
func TestRepository(t *testing.T) {
	out := filepath.Join(t.TempDir(), "site")
	if err := run(os.DirFS("../.."), out); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"index.html":              `<a href="docs/start-cluster.html">`,
		"docs/index.html":         `<a href="serving.html#more-functions-than-gpus">`,
		"docs/operate.html":       `<img src="map.png"`,
		"docs/adr/index.html":     `<link rel="stylesheet" href="../../style.css">`,
		"docs/map.png":            "PNG",
		"docs/start-serving.html": `<strong>Quick start: a model server that scales from zero</strong>`,
		"style.css":               "body {",
	} {
		text, err := os.ReadFile(filepath.Join(out, name))
		if err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%s lacks %s: %v", name, want, err)
		}
	}
	if pages, _ := filepath.Glob(filepath.Join(out, "docs", "*.html")); len(pages) < 30 {
		t.Errorf("only %d pages", len(pages))
	}
}

// TestProblems: every link that leads nowhere is named, and so is a page that cannot be reached.
func TestProblems(t *testing.T) {
	for _, c := range []struct {
		name, page string
		want       string // "": no problem
	}{
		{name: "all is well", page: "# A\n[b](b.md#to-do) [itself](#a) [other](https://example.org/x.md#y) [folder](more/) ![picture](p.png)"},
		{name: "in code", page: "`[x](gone.md)`\n\n    [x](gone.md)\n"},
		{name: "no file", page: "[x](gone.md)", want: "docs/a.md: the link gone.md"},
		{name: "no file, with a heading", page: "[x](gone.md#y)", want: "docs/a.md: the link gone.md#y"},
		{name: "no picture", page: "![x](gone.png)", want: "docs/a.md: the link gone.png"},
		{name: "no heading", page: "[x](b.md#done)", want: "docs/a.md: docs/b.md has no heading #done"},
		{name: "no heading here", page: "[x](#b)", want: "docs/a.md: docs/a.md has no heading #b"},
		{name: "a folder without a page", page: "[x](empty/)", want: "docs/a.md: the link empty/"},
		{name: "outside of the repository", page: "[x](../../secret.md)", want: "docs/a.md: the link ../../secret.md"},
		{name: "up to the top", page: "[top](../) [docs](.) [page](../README.md#top)"},
		{name: "from the root of the host", page: "[x](/b.md)", want: "docs/a.md: the link /b.md"},
		{name: "HTML", page: "A file of\n<name> is\nneeded.", want: "docs/a.md: <name> is HTML"},
		{name: "an HTML block", page: "<details>\n\n[b](b.md)\n\n</details>", want: "docs/a.md: <details> is HTML"},
		{name: "in a table", page: "| A |\n|---|\n| [x](gone.md) |", want: "docs/a.md: the link gone.md"},
		{name: "by reference", page: "[x][1]\n\n[1]: gone.md", want: "docs/a.md: the link gone.md"},
	} {
		t.Run(c.name, func(t *testing.T) {
			tree := fstest.MapFS{
				"README.md":           {Data: []byte("# Top\n[docs](docs/README.md)")},
				"docs/README.md":      {Data: []byte("# Docs\n[a](a.md) [b](b.md) [more](more/README.md)")},
				"docs/a.md":           {Data: []byte(c.page)},
				"docs/b.md":           {Data: []byte("# B\n## To do")},
				"docs/more/README.md": {Data: []byte("# More")},
				"docs/empty/x.yaml":   {},
				"docs/p.png":          {Data: []byte("PNG")},
			}
			_, err := read(tree)
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
			tree["docs/alone.md"] = &fstest.MapFile{Data: []byte("# Alone\n[itself](alone.md)")}
			if _, err := read(tree); err == nil || !strings.Contains(err.Error(), "docs/alone.md: no page links to it") {
				t.Errorf("a page that no other links to: %v", err)
			}
		})
	}
}

// TestKeepsOtherFolders: what is not a site is not removed.
func TestKeepsOtherFolders(t *testing.T) {
	tree := fstest.MapFS{"README.md": {Data: []byte("# Top")}, "docs/README.md": {Data: []byte("# Docs")}}
	mine, site := t.TempDir(), t.TempDir() // empty ones
	kept := filepath.Join(mine, "thesis.txt")
	if err := os.WriteFile(kept, []byte("years"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := run(tree, mine); err == nil || !strings.Contains(err.Error(), mine) {
		t.Errorf("a folder with other files: %v", err)
	}
	if _, err := os.Stat(kept); err != nil {
		t.Error(err)
	}
	for range 2 { // the second time over a site
		if err := run(tree, site); err != nil {
			t.Error(err)
		}
	}
}

// TestIdentifiers: headings have the identifiers that GitHub gives them.
func TestIdentifiers(t *testing.T) {
	ids := identifiers{used: map[string]bool{}}
	for _, c := range [][2]string{
		{"Try it", "try-it"},
		{"Try it", "try-it-1"},
		{"γ, tenancy and window", "γ-tenancy-and-window"},
		{"`kubectl gshare` on 1.36", "kubectl-gshare-on-136"},
		{"A_b - c", "a_b---c"},
	} {
		if got := string(ids.Generate([]byte(c[0]), 0)); got != c[1] {
			t.Errorf("%q: %q, want %q", c[0], got, c[1])
		}
	}
}
