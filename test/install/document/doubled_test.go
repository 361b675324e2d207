package document

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// cell matches the separator of the cells of a Markdown table: a bar that is not escaped.
var cell = regexp.MustCompile(`(?:^|[^\\])\|`)

// doubled returns the table rows whose first two cells equal those of a row above, and the long lines of text that occur twice. Such duplicates
// remain when two versions of a page are merged, and different readers then believe different versions.
func doubled(text string) (found []string) {
	lines, rows, fenced := map[string]bool{}, map[string]bool{}, false
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "```") {
			fenced = !fenced
		}
		seen, key := lines, line
		switch {
		case fenced:
			continue
		case strings.HasPrefix(line, "|"):
			at := cell.FindAllStringIndex(line, 3)
			seen, key = rows, line[:at[len(at)-1][1]]
		case line == "":
			clear(rows) // the end of a table
			continue
		default:
			clear(rows)
			if len(line) < 60 {
				continue
			}
		}
		if seen[key] {
			found = append(found, line)
		}
		seen[key] = true
	}
	return found
}

// TestDoubled: no page says the same thing twice.
func TestDoubled(t *testing.T) {
	pages, err := Pages(root)
	if err != nil || len(pages) < 30 {
		t.Fatalf("%d pages, %v", len(pages), err)
	}
	for _, page := range append(pages, filepath.Join(root, "README.md"), filepath.Join(root, "CHANGELOG.md")) {
		name, err := filepath.Rel(root, page)
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range doubled(read(t, name)) {
			t.Errorf("%s: twice: %s", name, line)
		}
	}
}

// TestDoubledFinds tests the search on small pages.
func TestDoubledFinds(t *testing.T) {
	const head = "| A | B | C |\n|---|---|---|\n"
	long := strings.Repeat("word ", 15)
	for _, c := range []struct {
		name, text string
		want       int
	}{
		{"rows", head + "| x | y | 1 |\n| x | y | 2 |\n", 1},
		{"a value each", head + "| x | y | 1 |\n| x | z | 1 |\n", 0},
		{"two tables", head + "| x | y | 1 |\n\n" + head + "| x | y | 1 |\n", 0},
		{"a bar in a cell", head + "| x | y \\| z | 1 |\n| x | y \\| w | 1 |\n", 0},
		{"two columns", "| A | B |\n|---|---|\n| x | y |\n| x | y |\n", 1},
		{"text", long + "\n" + long + "\n", 1},
		{"text apart", long + "\nshort\n\n" + long + "\n", 1},
		{"short text", "yes\nyes\n", 0},
		{"code", fmt.Sprintf("```\n%s\n%s\n```\n", long, long), 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			if found := doubled(c.text); len(found) != c.want {
				t.Errorf("%q, want %d", found, c.want)
			}
		})
	}
}
