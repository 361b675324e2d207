// Package monitoring reads the dashboard and the alerts of manifests/monitoring, and evaluates their queries over scraped metrics with
// Prometheus' own engine.
package monitoring

import (
	"encoding/json"
	"os"
	"path/filepath"

	"sigs.k8s.io/yaml"
)

// Query is the PromQL expression of a dashboard panel or of an alert.
type Query struct {
	Name string // of the panel or the alert
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
