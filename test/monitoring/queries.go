// Package monitoring reads the dashboard and the alerts of manifests/monitoring, and evaluates their queries over scraped metrics with
// Prometheus' own engine.
package monitoring

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"sigs.k8s.io/yaml"
)

// Query is the PromQL expression of a dashboard panel or of an alert.
type Query struct {
	Name string // name of the panel or the alert
	Expr string
}

// Dashboard returns the queries of the Grafana dashboard. root is the root of the repository.
func Dashboard(root string) (all []Query, err error) {
	var d struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := read(root, "dashboard.json", &d); err != nil {
		return nil, err
	}
	for _, p := range d.Panels {
		for _, t := range p.Targets {
			all = append(all, Query{p.Title, t.Expr})
		}
	}
	return all, nil
}

// Alerts returns the conditions of the Prometheus alerts. root is the root of the repository.
func Alerts(root string) (all []Query, err error) {
	var r struct {
		Spec struct {
			Groups []struct {
				Rules []struct{ Alert, Expr string }
			}
		}
	}
	if err := read(root, "rules.yaml", &r); err != nil {
		return nil, err
	}
	for _, g := range r.Spec.Groups {
		for _, a := range g.Rules {
			all = append(all, Query{a.Alert, a.Expr})
		}
	}
	return all, nil
}

func read(root, name string, into any) error {
	text, err := os.ReadFile(filepath.Join(root, "manifests/monitoring", name))
	if err != nil {
		return err
	}
	if filepath.Ext(name) == ".json" {
		return json.Unmarshal(text, into)
	}
	return yaml.Unmarshal(text, into)
}

// Scrape is the metrics of one target at one time.
type Scrape struct {
	Time   float64
	Text   string            // in Prometheus' text format
	Labels map[string]string // labels of the target; a series' own label of the same name has precedence
}

// Result is the value of a query: label sets with their samples, or an error.
type Result struct {
	Query, Error string
	Results      []struct {
		Labels map[string]string
		Value  string
	}
}

// Evaluator evaluates PromQL queries with Prometheus' own engine.
type Evaluator struct{ program string }

// BuildEvaluator builds the program hack/promeval, which is a Go module of its own, in the folder.
func BuildEvaluator(root, folder string) (Evaluator, error) {
	program, err := filepath.Abs(filepath.Join(folder, "promeval"))
	if err != nil {
		return Evaluator{}, err
	}
	cmd := exec.Command("go", "build", "-buildvcs=false", "-o", program, ".")
	cmd.Dir = filepath.Join(root, "hack/promeval")
	if out, err := cmd.CombinedOutput(); err != nil {
		return Evaluator{}, fmt.Errorf("build hack/promeval: %w\n%s", err, out)
	}
	return Evaluator{program}, nil
}

// Evaluate evaluates queries over the scraped metrics at a time in seconds.
func (j Evaluator) Evaluate(scrapes []Scrape, at float64, queries ...Query) (answers []Result, err error) {
	var expressions []string
	for _, q := range queries {
		expressions = append(expressions, q.Expr)
	}
	in, err := json.Marshal(map[string]any{"Scrapes": scrapes, "Queries": expressions, "At": at})
	if err != nil {
		return nil, err
	}
	var stderr bytes.Buffer
	cmd := exec.Command(j.program)
	cmd.Stdin, cmd.Stderr = bytes.NewReader(in), &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%w: %s", err, stderr.Bytes())
	}
	return answers, json.Unmarshal(out, &answers)
}
