package gateway

import (
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// TestReasonsAreDocumented: the page for callers has a row for each reason of a refusal, with each status that comes with it, and none for others.
func TestReasonsAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/serving-call.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, found := strings.Cut(string(page), "| Status | `X-Gshare-Reason` |")
	table, _, _ = strings.Cut(table, "\n\n")
	rows := map[string]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| \\d+ \\| `([a-z-]+)` \\|.*").FindAllStringSubmatch(table, -1) {
		rows[row[1]] = row[0]
	}
	statuses := map[string]int{"statusClientGone": statusClientGone}
	for status := 400; status < 600; status++ {
		statuses["http.Status"+strings.ReplaceAll(http.StatusText(status), " ", "")] = status
	}
	files, _ := filepath.Glob("*.go")
	constants := regexp.MustCompile(`(?m)^\t(reason[A-Z]\w*) += "([a-z-]+)"`)
	answers := regexp.MustCompile(`(?:newRefusal\(|refusal\{)([\w.]+), (reason[A-Z]\w*)`)
	reasons, given := map[string]string{}, [][][]byte(nil)
	for _, file := range files {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, constant := range constants.FindAllSubmatch(source, -1) {
			reason := string(constant[2])
			if reasons[string(constant[1])] = reason; rows[reason] == "" {
				t.Errorf("docs/serving-call.md has no row for the reason %s of %s", reason, file)
			}
		}
		given = append(given, answers.FindAllSubmatch(source, -1)...)
	}
	for _, answer := range given {
		reason, status := reasons[string(answer[2])], statuses[string(answer[1])]
		if status == 0 || !strings.Contains(rows[reason], strconv.Itoa(status)) {
			t.Errorf("the row of the reason %s in docs/serving-call.md does not have the status %d (%s)", reason, status, answer[1])
		}
	}
	for _, reason := range reasons {
		delete(rows, reason)
	}
	if !found || len(reasons) < 10 || len(given) < 20 || len(rows) > 0 {
		t.Errorf("%d reasons in %d answers; rows without one: %v", len(reasons), len(given), rows)
	}
}
