package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"sigs.k8s.io/kustomize/kyaml/yaml"
)

const (
	rulesFile = "manifests/monitoring/rules.yaml"

	// alertsURL is where a reader of an alert finds docs/alerts.md. runbook_url is this, and the heading of the alert.
	alertsURL = "https://github.com/gshare-dev/gshare/blob/main/docs/alerts.md#"
)

// alertGroup is a group of Prometheus alerts.
type alertGroup struct {
	Name  string  `yaml:"name"`
	Rules []alert `yaml:"rules"`
}

type alert struct {
	Alert       string            `yaml:"alert"`
	Expr        string            `yaml:"expr"`
	For         string            `yaml:"for"`
	Labels      map[string]string `yaml:"labels"`
	Annotations map[string]string `yaml:"annotations"`
}

// alertTitles are the headings of the groups.
var alertTitles = map[string]string{"gshare": "Scheduler, nodes and shares", "gshare-serving": "Functions"}

// alertsPage returns docs/alerts.md.
func alertsPage(root string) (string, error) {
	text, err := os.ReadFile(filepath.Join(root, rulesFile))
	if err != nil {
		return "", err
	}
	page, err := alertsText(text)
	if err != nil {
		return "", fmt.Errorf("%s: %w", rulesFile, err)
	}
	return page, nil
}

func alertsText(rules []byte) (string, error) {
	var file struct {
		Spec struct {
			Groups []alertGroup `yaml:"groups"`
		} `yaml:"spec"`
	}
	if err := yaml.Unmarshal(rules, &file); err != nil {
		return "", err
	}
	var page strings.Builder
	page.WriteString("# Alerts\n\nWritten from `" + rulesFile + "` by `make reference`. How to install them: [operate.md](operate.md#monitor). " +
		"The link of an alert in Alertmanager leads to its heading here.\n")
	known := map[string]bool{}
	for _, group := range file.Spec.Groups {
		title, ok := alertTitles[group.Name]
		if !ok {
			return "", fmt.Errorf("group %s has no title", group.Name)
		}
		fmt.Fprintf(&page, "\n## %s\n", title)
		for _, a := range group.Rules {
			if err := a.check(known); err != nil {
				return "", fmt.Errorf("alert %s: %w", a.Alert, err)
			}
			page.WriteString(a.section())
		}
	}
	if len(known) == 0 {
		return "", errors.New("no alerts")
	}
	return page.String(), nil
}

// check returns an error unless the alert says what it means and what to do, and links to its heading, which no other alert has. It adds its
// name to the known ones.
func (a alert) check(known map[string]bool) error {
	if known[a.Alert] {
		return errors.New("there are two of this name")
	}
	known[a.Alert] = true
	for _, name := range []string{"summary", "description", "diagnosis", "mitigation"} {
		if a.Annotations[name] == "" {
			return fmt.Errorf("no annotation %s", name)
		}
	}
	if want := alertsURL + strings.ToLower(a.Alert); a.Annotations["runbook_url"] != want {
		return fmt.Errorf("runbook_url is %q, not %s", a.Annotations["runbook_url"], want)
	}
	if a.Labels["severity"] == "" {
		return errors.New("no severity")
	}
	return nil
}

var (
	templateLabel = regexp.MustCompile(`\{\{ \$labels\.(\w+) \}\}`)
	templateValue = regexp.MustCompile(`\{\{ \$value \}\}`)
)

func (a alert) section() string {
	summary := templateLabel.ReplaceAllStringFunc(a.Annotations["summary"], func(s string) string {
		return strings.ToUpper(templateLabel.FindStringSubmatch(s)[1])
	})
	summary = templateValue.ReplaceAllString(summary, "N")
	after := ""
	if a.For != "" {
		after = ", for " + a.For
	}
	return fmt.Sprintf("\n### %s\n\n> %s\n\nSeverity %s. It fires while this has results%s:\n\n```promql\n%s\n```\n\n* **Meaning:** %s\n* **Look at:** %s\n* **Do:** %s\n",
		a.Alert, summary, a.Labels["severity"], after, strings.TrimSpace(a.Expr),
		a.Annotations["description"], a.Annotations["diagnosis"], a.Annotations["mitigation"])
}
