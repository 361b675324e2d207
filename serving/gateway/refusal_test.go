package gateway

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestReasonsAreDocumented: the page for callers has a row for each reason of a refusal, and none for others.
func TestReasonsAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/serving-call.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, found := strings.Cut(string(page), "| Status | `X-Gshare-Reason` |")
	table, _, _ = strings.Cut(table, "\n\n")
	rows := map[string]bool{}
	for _, row := range regexp.MustCompile("(?m)^\\| \\d+ \\| `([a-z-]+)` \\|").FindAllStringSubmatch(table, -1) {
		rows[row[1]] = true
	}
	files, _ := filepath.Glob("*.go")
	constants := regexp.MustCompile(`(?m)^\treason[A-Z]\w* += "([a-z-]+)"`)
	seen := 0
	for _, file := range files {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, constant := range constants.FindAllSubmatch(source, -1) {
			reason := string(constant[1])
			if seen++; !rows[reason] {
				t.Errorf("docs/serving-call.md has no row for the reason %s of %s", reason, file)
			}
			delete(rows, reason)
		}
	}
	if !found || seen < 10 || len(rows) > 0 {
		t.Errorf("%d reasons; rows without one: %v", seen, rows)
	}
}
