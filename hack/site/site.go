package main

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"html/template"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// contents is the page whose links are the navigation, in the same order.
const contents = "docs/README.md"

var (
	//go:embed page.html
	layout string
	//go:embed style.css
	style []byte

	frame = template.Must(template.New("page").Parse(layout))
)

// site is what is written: pages by their paths in the repository, and the other files that they link to.
type site struct {
	pages map[string]*page
	files map[string]bool
}

// read reads README.md, all pages below docs, and whatever they link to. Its error names every link that leads nowhere, and every page
// below docs that no other page links to.
func read(tree fs.FS) (*site, error) {
	s := &site{pages: map[string]*page{}, files: map[string]bool{}}
	todo := []string{"README.md"}
	err := fs.WalkDir(tree, "docs", func(name string, _ fs.DirEntry, err error) error {
		if path.Ext(name) == ".md" {
			todo = append(todo, name)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	linked := map[string]bool{"README.md": true, contents: true}
	var problems []error
	for len(todo) > 0 {
		name := todo[0]
		todo = todo[1:]
		if s.pages[name] != nil {
			continue
		}
		p, err := parse(tree, name)
		if err != nil {
			problems = append(problems, err)
			continue
		}
		s.pages[name] = p
		for _, l := range p.links {
			if l.target != name {
				linked[l.target] = true
			}
			if path.Ext(l.target) == ".md" {
				todo = append(todo, l.target)
			} else {
				s.files[l.target] = true
			}
		}
	}
	for name, p := range s.pages {
		for _, l := range p.links {
			if to := s.pages[l.target]; to != nil && l.fragment != "" && !to.headings[l.fragment] {
				problems = append(problems, fmt.Errorf("%s: %s has no heading #%s", name, l.target, l.fragment))
			}
		}
		if !linked[name] {
			problems = append(problems, fmt.Errorf("%s: no page links to it", name))
		}
	}
	slices.SortFunc(problems, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return s, errors.Join(problems...)
}

// run writes the site of a repository into a folder, which it empties first. It refuses a folder that contains anything but a site.
func run(tree fs.FS, out string) error {
	s, err := read(tree)
	if err != nil {
		return err
	}
	if err := empty(out); err != nil {
		return err
	}
	for name, p := range s.pages {
		text, err := s.render(p)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if err := write(out, htmlName(name), text); err != nil {
			return err
		}
	}
	for name := range s.files {
		content, err := fs.ReadFile(tree, name)
		if err != nil {
			return err
		}
		if err := write(out, name, content); err != nil {
			return err
		}
	}
	return write(out, "style.css", style)
}

// empty removes the site of an earlier run.
func empty(out string) error {
	there, err := os.ReadDir(out)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(out, "style.css")); len(there) > 0 && err != nil {
		return fmt.Errorf("%s has other files than a site: name an empty folder, or remove it", out)
	}
	return os.RemoveAll(out)
}

func write(out, name string, content []byte) error {
	file := filepath.Join(out, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return os.WriteFile(file, content, 0o644)
}

// entry is a line of the navigation.
type entry struct {
	Title, Link string
	Here        bool
}

// render returns a page with the navigation beside it.
func (s *site) render(p *page) ([]byte, error) {
	body, err := p.html()
	if err != nil {
		return nil, err
	}
	root := strings.Repeat("../", strings.Count(p.name, "/"))
	data := struct {
		Title, Root string
		Body        template.HTML
		Navigation  []entry
	}{p.title, root, template.HTML(body), nil}
	listed := map[string]bool{}
	for _, name := range append([]string{"README.md", contents}, s.pages[contents].order()...) {
		if to := s.pages[name]; to != nil && !listed[name] {
			listed[name] = true
			data.Navigation = append(data.Navigation, entry{Title: to.title, Link: root + htmlName(name), Here: name == p.name})
		}
	}
	var text bytes.Buffer
	err = frame.Execute(&text, data)
	return text.Bytes(), err
}

// htmlName returns the path in the site of a Markdown file of the repository.
func htmlName(name string) string {
	dir, file := path.Split(name)
	if file == "README.md" {
		return dir + "index.html"
	}
	return strings.TrimSuffix(name, ".md") + ".html"
}
