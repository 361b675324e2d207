package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestRunbooks: each rule links to a heading of the page as it is kept, and each heading is that of a rule.
func TestRunbooks(t *testing.T) {
	rules, err := os.ReadFile(filepath.Join(root, rulesFile))
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(root, "docs/alerts.md"))
	if err != nil {
		t.Fatal(err)
	}
	headings := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^### (\w+)$`).FindAllStringSubmatch(string(page), -1) {
		headings[strings.ToLower(m[1])] = true
	}
	all := strings.Count(string(rules), "- alert:")
	links := regexp.MustCompile(`runbook_url: `+regexp.QuoteMeta(alertsURL)+`(\S+)`).FindAllStringSubmatch(string(rules), -1)
	if len(links) != all || len(headings) != all || all == 0 {
		t.Errorf("%d alerts, %d links, %d headings", all, len(links), len(headings))
	}
	for _, m := range links {
		if !headings[m[1]] {
			t.Errorf("no heading for %s", m[0])
		}
	}
}

const oneAlert = `spec:
  groups:
  - name: gshare
    rules:
    - alert: GShareBad
      expr: bad > 0
      for: 2m
      labels: {severity: warning}
      annotations:
        summary: "{{ $value }} bad on {{ $labels.instance }}."
        description: It is bad.
        diagnosis: Look.
        mitigation: Do.
        runbook_url: ` + alertsURL + `gsharebad
`

// TestAlertsText: the page has what a rule says, and a rule that lacks any of it is an error.
func TestAlertsText(t *testing.T) {
	page, err := alertsText([]byte(oneAlert))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"### GShareBad\n", "> N bad on INSTANCE.\n", "bad > 0\n", "for 2m", "It is bad.", "Look.", "Do."} {
		if !strings.Contains(page, want) {
			t.Errorf("no %q in\n%s", want, page)
		}
	}
	rule := oneAlert[strings.Index(oneAlert, "    - alert"):]
	for name, text := range map[string]string{
		"no description":  strings.Replace(oneAlert, "description", "other", 1),
		"no diagnosis":    strings.Replace(oneAlert, "diagnosis", "other", 1),
		"no mitigation":   strings.Replace(oneAlert, "mitigation", "other", 1),
		"no summary":      strings.Replace(oneAlert, "summary", "other", 1),
		"no severity":     strings.Replace(oneAlert, "severity", "other", 1),
		"no runbook":      strings.Replace(oneAlert, "runbook_url", "other", 1),
		"another heading": strings.Replace(oneAlert, "#gsharebad", "#gsharegood", 1),
		"two of a name":   oneAlert + rule,
		"unknown group":   strings.Replace(oneAlert, "name: gshare", "name: other", 1),
		"no alerts":       "spec: {}",
		"no YAML":         "{",
	} {
		t.Run(name, func(t *testing.T) {
			if page, err := alertsText([]byte(text)); err == nil {
				t.Errorf("accepted:\n%s", page)
			}
		})
	}
}
