// Package layers_test enforces the structure of the repository: which ring may import which, where clocks and exits are
// allowed, that every package and top-level folder says what it is, and that large types have a reason.
//
// It reads the sources itself instead of asking the go command, because the test cache notices only files that the test
// opens: a version built on "go list" went on passing from the cache after a forbidden import was added.
package layers_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const (
	module = "github.com/gshare-dev/gshare/"
	root   = "../.."
)

// source is one Go file. Its path is relative to the root of the repository.
type source struct {
	path string
	file *ast.File
	fset *token.FileSet
}

func (s source) folder() string { return path.Dir(s.path) }
func (s source) isTest() bool   { return strings.HasSuffix(s.path, "_test.go") }

func TestRepository(t *testing.T) {
	sources := readSources(t)
	if len(sources) == 0 {
		t.Fatal("no Go file found")
	}
	var found []string
	for _, s := range sources {
		found = append(found, checkImports(s)...)
		found = append(found, checkCalls(s)...)
	}
	found = append(found, checkPackages(sources)...)
	found = append(found, checkReadmes(os.DirFS(root))...)
	slices.Sort(found)
	for _, violation := range found {
		t.Error(violation)
	}
}

func readSources(t *testing.T) []source {
	t.Helper()
	var sources []source
	err := filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if name != root && !visible(entry.Name()) {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") {
			return nil
		}
		relative, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		content, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		sources = append(sources, parse(t, filepath.ToSlash(relative), string(content)))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return sources
}

// visible reports whether a folder is part of the repository's own sources.
func visible(folder string) bool {
	return !strings.HasPrefix(folder, ".") && !slices.Contains([]string{"bin", "coverage", "testdata"}, folder)
}

func parse(t *testing.T, name, content string) source {
	t.Helper()
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, name, content, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	return source{path: name, file: file, fset: fset}
}
