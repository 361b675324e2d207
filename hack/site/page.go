package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"path"
	"strings"
	"unicode"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/text"
)

var markdown = goldmark.New(goldmark.WithExtensions(extension.GFM), goldmark.WithParserOptions(parser.WithAutoHeadingID()))

// page is a Markdown file whose links have been rewritten to where their targets are in the site.
type page struct {
	name     string // path in the repository
	title    string
	source   []byte
	tree     ast.Node
	headings map[string]bool // identifiers of its headings
	links    []link
}

// link is a link to a file of the repository.
type link struct {
	target   string // path of a file; the README.md of a folder
	fragment string // identifier of a heading; empty for the whole file
}

// parse reads a page. Its error names links to missing files, and HTML, which the site would leave out: mostly a <name> that is not marked as
// code.
func parse(tree fs.FS, name string) (*page, error) {
	source, err := fs.ReadFile(tree, name)
	if err != nil {
		return nil, err
	}
	p := &page{name: name, title: name, source: source, headings: map[string]bool{}}
	p.tree = markdown.Parser().Parse(text.NewReader(source), parser.WithContext(parser.NewContext(parser.WithIDs(&identifiers{used: p.headings}))))
	var problems []error
	err = ast.Walk(p.tree, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		var err error
		switch n := n.(type) {
		case *ast.Heading:
			if n.Level == 1 && p.title == name {
				p.title = string(n.Lines().Value(source))
			}
		case *ast.Link:
			n.Destination, err = p.follow(tree, n.Destination)
		case *ast.Image:
			n.Destination, err = p.follow(tree, n.Destination)
		case *ast.RawHTML:
			err = isComment(n.Segments.Value(source))
		case *ast.HTMLBlock:
			err = isComment(n.Lines().Value(source))
		}
		if err != nil {
			problems = append(problems, fmt.Errorf("%s: %w", name, err))
		}
		return ast.WalkContinue, nil
	})
	return p, errors.Join(append(problems, err)...)
}

// isComment returns an error for HTML other than a comment, which readers would miss.
func isComment(html []byte) error {
	html = bytes.TrimSpace(html)
	if bytes.HasPrefix(html, []byte("<!--")) {
		return nil
	}
	first, _, _ := bytes.Cut(html, []byte("\n"))
	return fmt.Errorf("%s is HTML", first)
}

// follow records the target of a link of the page, and returns the link's destination in the site. It does not touch links to other hosts.
func (p *page) follow(tree fs.FS, destination []byte) ([]byte, error) {
	u, err := url.Parse(string(destination))
	if err != nil || u.Scheme != "" || u.Host != "" {
		return destination, err
	}
	if path.IsAbs(u.Path) { // GitHub resolves it from the repository's root, a browser from the host's
		return destination, fmt.Errorf("the link %s: write where it leads from the page", destination)
	}
	target := p.name
	if u.Path != "" {
		target = path.Join(path.Dir(p.name), u.Path)
	}
	info, err := fs.Stat(tree, target)
	if err == nil && info.IsDir() {
		u.Path = strings.TrimSuffix(u.Path, "/") + "/README.md"
		target = path.Join(target, "README.md")
		_, err = fs.Stat(tree, target)
	}
	if err != nil {
		return destination, fmt.Errorf("the link %s: %w", destination, err)
	}
	p.links = append(p.links, link{target: target, fragment: u.Fragment})
	if path.Ext(u.Path) == ".md" {
		u.Path = htmlName(u.Path)
	}
	return []byte(u.String()), nil
}

// order returns the targets of the page's links, in the order of the links.
func (p *page) order() []string {
	var targets []string
	for _, l := range p.links {
		targets = append(targets, l.target)
	}
	return targets
}

func (p *page) html() ([]byte, error) {
	var b bytes.Buffer
	err := markdown.Renderer().Render(&b, p.source, p.tree)
	return b.Bytes(), err
}

// identifiers gives headings the same identifiers as GitHub does, so that links work in both places.
type identifiers struct{ used map[string]bool }

// Generate implements parser.IDs.
func (i *identifiers) Generate(value []byte, _ ast.NodeKind) []byte {
	id := strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-', r == '_', unicode.IsLetter(r), unicode.IsDigit(r):
			return unicode.ToLower(r)
		}
		return -1
	}, strings.TrimSpace(string(value)))
	unique := id
	for n := 1; i.used[unique]; n++ {
		unique = fmt.Sprintf("%s-%d", id, n)
	}
	i.used[unique] = true
	return []byte(unique)
}

// Put implements parser.IDs.
func (i *identifiers) Put(value []byte) { i.used[string(value)] = true }
