package monitoring

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
)

// Scrape is the metrics text of one target at a time.
type Scrape struct {
	Time   float64
	Text   string            // in Prometheus' text format
	Labels map[string]string // of the target; a series' own label of that name has precedence
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
