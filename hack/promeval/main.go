// Command promeval evaluates PromQL queries with Prometheus' own engine: it reads samples and queries as JSON from standard input, and
// writes the results. It has its own Go module to keep the dependencies of Prometheus out of gshare's.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
)

// input is the JSON input: scraped samples, and queries to evaluate at one time. Times are in seconds.
type input struct {
	Scrapes []scrape
	Queries []string
	At      float64
}

type scrape struct {
	Time   float64
	Text   string            // in Prometheus' text format
	Labels map[string]string // of the target; added to a series unless it has one of that name
}

// output is the result of one query.
type output struct {
	Query   string
	Error   string   `json:",omitempty"`
	Results []result `json:",omitempty"`
}

type result struct {
	Labels map[string]string
	Value  string // a string as in Prometheus' own API, since JSON has no NaN
}

func main() {
	var in input
	if err := json.NewDecoder(os.Stdin).Decode(&in); err != nil {
		fail(err)
	}
	series, err := loadScrapes(in.Scrapes)
	if err != nil {
		fail(err)
	}
	var all []output
	for _, q := range in.Queries {
		all = append(all, evaluate(series, q, in.At))
	}
	if err := json.NewEncoder(os.Stdout).Encode(all); err != nil {
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "promeval:", err)
	os.Exit(1)
}

func evaluate(from memoryStorage, query string, at float64) output {
	engine := promql.NewEngine(promql.EngineOpts{
		Logger: slog.New(slog.DiscardHandler), MaxSamples: 1e6, Timeout: time.Minute, EnableAtModifier: true, EnableNegativeOffset: true,
		Parser: parser.NewParser(parser.Options{}),
	})
	defer engine.Close()
	q, err := engine.NewInstantQuery(context.Background(), from, nil, query, time.UnixMilli(int64(at*1000)))
	if err != nil {
		return output{Query: query, Error: err.Error()}
	}
	defer q.Close()
	answer := q.Exec(context.Background())
	if answer.Err != nil {
		return output{Query: query, Error: answer.Err.Error()}
	}
	return output{Query: query, Results: resultsOf(answer)}
}

func resultsOf(answer *promql.Result) (all []result) {
	if s, err := answer.Scalar(); err == nil {
		return []result{{Value: text(s.V)}}
	}
	vector, err := answer.Vector()
	if err != nil {
		return nil
	}
	for _, s := range vector {
		r := result{Labels: map[string]string{}, Value: text(s.F)}
		s.Metric.Range(func(l labels.Label) { r.Labels[l.Name] = l.Value })
		all = append(all, r)
	}
	return all
}

func text(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }
