package monitoring

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
)

// Scrape is what a target has said at a time, in seconds.
type Scrape struct {
	Time   float64
	Text   string            // in Prometheus' text format
	Labels map[string]string // of the target, where a series has none of that name
}

// Answer is the result of a query.
type Answer struct {
	Query, Error string
	Results      []struct {
		Labels map[string]string
		Value  string
	}
}

// Judge is Prometheus' engine.
type Judge struct{ program string }

// Build makes a judge of hack/promeval, a module of its own, in the folder.
func Build(root, folder string) (Judge, error) {
	program, err := filepath.Abs(filepath.Join(folder, "promeval"))
	if err != nil {
		return Judge{}, err
	}
	cmd := exec.Command("go", "build", "-buildvcs=false", "-o", program, ".")
	cmd.Dir = filepath.Join(root, "hack/promeval")
	if out, err := cmd.CombinedOutput(); err != nil {
		return Judge{}, fmt.Errorf("build hack/promeval: %w\n%s", err, out)
	}
	return Judge{program}, nil
}

// Ask evaluates queries at a time, over the scrapes.
func (j Judge) Ask(scrapes []Scrape, at float64, queries ...Query) (answers []Answer, err error) {
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
