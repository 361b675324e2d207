package layers_test

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var (
	// code matches the number of a correction to a paper, or of a published figure.
	code = regexp.MustCompile(`\bN-[A-Z]\d+\b|\b[FDUP]\d{1,2}\b`)

	// codeRange matches several numbers, such as "N-F1 to N-F3".
	codeRange = regexp.MustCompile(`\b(N-[A-Z])(\d+) to N-[A-Z](\d+)\b`)

	// page matches a document that a comment names by its path from the root of the repository.
	page = regexp.MustCompile(`\b[\w./-]+\.md\b`)

	// sourcePath matches a file of the repository that a comment names by its path from the root, optionally with a name that the file contains.
	sourcePath = regexp.MustCompile(`(?:^|[\s("'` + "`" + `])((?:` + tops + `)/[\w./-]+\.(?:go|c|h|sh|py|yaml|json|txt|def))(?::([A-Za-z_]\w*))?`)

	// decision matches the number of a record in docs/adr.
	decision = regexp.MustCompile(`\bADR (\d+)\b`)

	// address matches the address of a page on the web.
	address = regexp.MustCompile(`\bhttps?://\w\S*`)

	// outside matches names of things that a clone does not contain, but not JSON pointers to spec. Each pattern has a bracket so that it does not
	// match itself.
	outside = regexp.MustCompile(`\bDESIG[N](\.md)?\b|\b(facts|shared)[/](data|[a-z-]+\.md|[a-z]+/)|(^|\.\./|[^/\w])spec[/](data|[a-z-]+\.md|[a-z]+/)|\bHOUS[E]\.md`)
)

// tops are the folders at the root, as a part of a regular expression.
const tops = "cmd|deviceplugin|draplugin|docs|hack|hook|lab|manifests|node|plugins|python|serving|test|vgpu"

// notCodes are words that look like codes.
var notCodes = []string{"F16", "F32", "F64", "P95", "P99"}

// defined returns the numbers that the glossary and the pages of the papers define: those in the first column of a table.
func defined(tree fs.FS) (map[string]bool, error) {
	pages, err := fs.Glob(tree, "docs/papers/*.md")
	if err != nil {
		return nil, err
	}
	found := map[string]bool{}
	for _, name := range append(pages, "docs/glossary.md") {
		text, err := fs.ReadFile(tree, name)
		if err != nil {
			return nil, err
		}
		for line := range strings.Lines(string(text)) {
			if !strings.HasPrefix(line, "|") {
				continue
			}
			first := strings.SplitN(line, "|", 3)[1]
			for _, c := range code.FindAllString(first, -1) {
				found[c] = true
			}
			for _, m := range codeRange.FindAllStringSubmatch(first, -1) {
				from, _ := strconv.Atoi(m[2])
				to, _ := strconv.Atoi(m[3])
				for n := from; n <= to; n++ {
					found[m[1]+strconv.Itoa(n)] = true
				}
			}
		}
	}
	return found, nil
}

// checkCitations finds, in one text, numbers that no page defines, files, names in them and decisions that do not exist, and references to things
// outside the repository.
func checkCitations(tree fs.FS, name, text string, known map[string]bool) []string {
	var found []string
	for number, line := range strings.Split(text, "\n") {
		where := fmt.Sprintf("%s:%d: ", name, number+1)
		if m := outside.FindString(line); m != "" {
			found = append(found, where+m+" is outside the repository")
		}
		comment, is := commentOf(name, line)
		if !is {
			continue
		}
		for _, c := range code.FindAllString(comment, -1) {
			if !known[c] && !slices.Contains(notCodes, c) {
				found = append(found, where+c+" is defined neither in docs/glossary.md nor in docs/papers")
			}
		}
		for _, p := range page.FindAllString(comment, -1) {
			if !exists(tree, p) && !exists(tree, path.Join(path.Dir(name), p)) && !exists(tree, path.Join("docs", p)) && !exists(tree, path.Join("test/bench", p)) {
				found = append(found, where+p+" does not exist")
			}
		}
		for _, m := range sourcePath.FindAllStringSubmatch(comment, -1) {
			text, err := fs.ReadFile(tree, m[1])
			switch {
			case err != nil:
				found = append(found, where+m[1]+" does not exist")
			case m[2] != "" && !regexp.MustCompile(`\b`+m[2]+`\b`).Match(text):
				found = append(found, where+m[1]+" has no "+m[2])
			}
		}
		for _, m := range decision.FindAllStringSubmatch(comment, -1) {
			if records, _ := fs.Glob(tree, "docs/adr/"+m[1]+"-*.md"); len(records) == 0 {
				found = append(found, where+"docs/adr has no record "+m[1])
			}
		}
		if m := address.FindString(comment); m != "" {
			found = append(found, where+m+" is outside the repository: say what it says")
		}
	}
	return found
}

// commentOf returns the part of a line that is a comment, according to the language of the file.
func commentOf(name, line string) (string, bool) {
	switch filepath.Ext(name) {
	case ".go", ".c", ".h":
		if trimmed := strings.TrimSpace(line); strings.HasPrefix(trimmed, "*") {
			return trimmed, true
		}
		for _, sign := range []string{"// ", "/* "} {
			if _, comment, is := strings.Cut(line, sign); is {
				return comment, true
			}
		}
		return "", false
	case ".sh", ".py":
		_, comment, is := strings.Cut(line, "# ")
		return comment, is
	}
	return line, true
}

func exists(tree fs.FS, name string) bool {
	_, err := fs.Stat(tree, path.Clean(name))
	return err == nil
}

// TestCitations enforces that everything cited in the repository is in the repository.
func TestCitations(t *testing.T) {
	tree := os.DirFS(root)
	known, err := defined(tree)
	if err != nil {
		t.Fatal(err)
	}
	err = fs.WalkDir(tree, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if name != "." && !visible(entry.Name()) || entry.Name() == "testdata" {
				return fs.SkipDir
			}
			return nil
		}
		if !slices.Contains([]string{".go", ".c", ".h", ".sh", ".py"}, path.Ext(name)) {
			return nil
		}
		if name == "test/layers/bad_test.go" { // cites on purpose what does not exist
			return nil
		}
		text, err := fs.ReadFile(tree, name)
		for _, violation := range checkCitations(tree, name, string(text), known) {
			t.Error(violation)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// inPage matches a path of the repository in backquotes.
var inPage = regexp.MustCompile("`((?:" + tops + ")/[\\w./-]+)`")

// nameInPage matches a name in a file, in backquotes. The file may be named from the folder of the page.
var nameInPage = regexp.MustCompile("`([\\w./-]+\\.\\w+):([A-Za-z_]\\w*)`")

// checkPaths finds paths that a page names and that do not exist, and names that their files do not have.
func checkPaths(tree fs.FS, name, text string) []string {
	var found []string
	for _, m := range inPage.FindAllStringSubmatch(text, -1) {
		if !exists(tree, m[1]) {
			found = append(found, fmt.Sprintf("%s: %s does not exist", name, m[1]))
		}
	}
	for _, m := range nameInPage.FindAllStringSubmatch(text, -1) {
		file, err := fs.ReadFile(tree, path.Join(path.Dir(name), m[1]))
		if err != nil {
			file, err = fs.ReadFile(tree, m[1])
		}
		if err != nil || !regexp.MustCompile(`\b`+m[2]+`\b`).Match(file) {
			found = append(found, fmt.Sprintf("%s: %s:%s does not exist", name, m[1], m[2]))
		}
	}
	return found
}

// TestPaths enforces that the files named on the pages for contributors and on those of the papers exist.
func TestPaths(t *testing.T) {
	tree := os.DirFS(root)
	papers, err := fs.Glob(tree, "docs/papers/*.md")
	if err != nil || len(papers) != 5 {
		t.Fatalf("%d pages of papers, %v", len(papers), err)
	}
	for _, name := range append(papers, "CONTRIBUTING.md", "README.md", "docs/architecture.md", "docs/README.md", "test/README.md", "hack/README.md", "vgpu/README.md", "cmd/README.md", "serving/README.md") {
		text, err := fs.ReadFile(tree, name)
		if err != nil {
			t.Fatal(err)
		}
		for _, violation := range checkPaths(tree, name, string(text)) {
			t.Error(violation)
		}
	}
}
