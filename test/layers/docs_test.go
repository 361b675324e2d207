package layers_test

import (
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
)

// vague lists package names that say nothing about the contents, so that everything ends up there.
var vague = []string{"util", "utils", "common", "helper", "helpers", "types"}

// readmeLines is the length of about a page.
const readmeLines = 60

// checkPackages requires exactly one package comment for each package, and a meaningful package name. The tests of a package
// need no comment of their own; a folder that contains only tests does.
func checkPackages(sources []source) []string {
	comments := map[string]int{} // by folder
	names := map[string]string{}
	for _, s := range sources {
		if _, ok := names[s.folder()]; !ok || !s.isTest() {
			names[s.folder()] = s.file.Name.Name
		}
	}
	var found []string
	for _, s := range sources {
		name := names[s.folder()]
		if s.file.Doc == nil || s.file.Name.Name != name {
			continue
		}
		comments[s.folder()]++
		want := "Package " + name + " "
		if name == "main" {
			want = "Command " + path.Base(s.folder()) + " "
		}
		if !strings.HasPrefix(strings.ReplaceAll(s.file.Doc.Text(), "\n", " "), want) {
			found = append(found, fmt.Sprintf("%s: the package comment does not begin with %q", s.path, want))
		}
	}
	for folder, name := range names {
		if comments[folder] != 1 {
			found = append(found, fmt.Sprintf("%s: package %s has %d package comments, want 1", folder, name, comments[folder]))
		}
		if slices.Contains(vague, name) {
			found = append(found, fmt.Sprintf("%s: package %s: name it after what it holds", folder, name))
		}
	}
	return found
}

// checkReadmes requires a README.md of at most one page in each top-level folder.
func checkReadmes(tree fs.FS) []string {
	entries, err := fs.ReadDir(tree, ".")
	if err != nil {
		return []string{err.Error()}
	}
	var found []string
	for _, entry := range entries {
		if !entry.IsDir() || !visible(entry.Name()) {
			continue
		}
		name := entry.Name() + "/README.md"
		content, err := fs.ReadFile(tree, name)
		if err != nil {
			found = append(found, name+": missing: each top folder says what it is for, its rules and how it is tested")
		} else if lines := strings.Count(string(content), "\n"); lines > readmeLines {
			found = append(found, fmt.Sprintf("%s: %d lines, more than a page (%d)", name, lines, readmeLines))
		}
	}
	return found
}
