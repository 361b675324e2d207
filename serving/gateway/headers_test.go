package gateway

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/gshare-dev/gshare/serving/oip"
)

// TestHeadersAreDocumented: the headers of requests that a gateway reads are constants of headers.go, and the page for callers has a row for each, and
// none for others.
func TestHeadersAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/serving-call.md")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("headers.go")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(page), "| Header of a request |")
	table, _, _ = strings.Cut(table, "\n\n")
	rows := map[string]bool{}
	for _, row := range regexp.MustCompile("(?m)^\\| (`[^|]+) \\|").FindAllStringSubmatch(table, -1) {
		for _, name := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(row[1], -1) {
			rows[name[1]] = true
		}
	}
	names := []string{oip.HeaderName}
	for _, constant := range regexp.MustCompile(`(?m)^\t\w+Header += "([^"]+)"`).FindAllStringSubmatch(string(source), -1) {
		names = append(names, constant[1])
	}
	literal := regexp.MustCompile(`(?:[hH]eader|\bh)(?:\(\))?(?:\.(?:Get|Values)\(|\[)"([^"]+)"|Headers = \[\]string\{"`)
	own, _ := filepath.Glob("*.go")
	for _, file := range append(own, "http1/http1.go") {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, read := range literal.FindAllStringSubmatch(string(text), -1) {
			switch {
			case file == "http1/http1.go": // works without a gateway and has its own list
				names = append(names, read[1])
			case !strings.HasSuffix(file, "_test.go"):
				t.Errorf("%s: %s: the name of the header belongs into headers.go", file, read[0])
			}
		}
	}
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		if !rows[name] {
			t.Errorf("docs/serving-call.md has no row for the header %s, which headers.go names", name)
		}
		delete(rows, name)
	}
	for name := range rows {
		t.Errorf("docs/serving-call.md has a row for the header %s, which headers.go does not name", name)
	}
	if len(names) < 14 {
		t.Errorf("only %d headers: %v", len(names), names)
	}
}
