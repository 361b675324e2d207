package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// outputLines is how many lines of a failure's output the summary shows. A dump of all goroutines can have thousands.
const outputLines = 200

// summary collects the results of all runs.
type summary struct {
	suites map[*suite]*suiteSummary
}

type suiteSummary struct {
	seconds []float64 // of each run
	failed  int       // runs
	tests   map[string]*testSummary
}

// testSummary is a test that failed, and what its first failure was.
type testSummary struct {
	failed int // runs
	seed   int64
	output string
}

func newSummary() *summary { return &summary{suites: map[*suite]*suiteSummary{}} }

func (s *summary) add(r result) {
	p := s.suites[r.suite]
	if p == nil {
		p = &suiteSummary{tests: map[string]*testSummary{}}
		s.suites[r.suite] = p
	}
	p.seconds = append(p.seconds, r.seconds)
	if len(r.failures) > 0 {
		p.failed++
	}
	for _, f := range r.failures {
		if p.tests[f.test] == nil {
			p.tests[f.test] = &testSummary{seed: r.seed, output: f.output}
		}
		p.tests[f.test].failed++
	}
}

// print prints the runs of each package, then the tests that failed. It reports whether there are any, or if nothing ran.
func (s *summary) print(out io.Writer) (failed bool) {
	suites := slices.SortedFunc(maps.Keys(s.suites), func(a, b *suite) int { return strings.Compare(a.String(), b.String()) })
	fmt.Fprintf(out, "\n%-50s %6s %6s %9s\n", "PACKAGE", "RUNS", "FAILED", "MEDIAN")
	runs := 0
	for _, suite := range suites {
		p := s.suites[suite]
		runs += len(p.seconds)
		fmt.Fprintf(out, "%-50s %6d %6d %8.2fs\n", suite, len(p.seconds), p.failed, median(p.seconds))
	}
	tests := 0
	for _, suite := range suites {
		p := s.suites[suite]
		for _, name := range slices.Sorted(maps.Keys(p.tests)) {
			test := p.tests[name]
			tests++
			fmt.Fprintf(out, "\nFAIL %s %s: %d of %d runs; the first: go test %s\n%s", suite, testName(name), test.failed, len(p.seconds),
				suite.reproduce(test.seed), head(test.output))
		}
	}
	fmt.Fprintf(out, "\n%d runs of %d packages, %d tests failed at least once\n", runs, len(suites), tests)
	return tests > 0 || runs == 0
}

// head returns the first lines of an output, and says how many are left out.
func head(output string) string {
	lines := slices.Collect(strings.Lines(output))
	if left := len(lines) - outputLines; left > 0 {
		return strings.Join(lines[:outputLines], "") + fmt.Sprintf("... and %d more lines\n", left)
	}
	return output
}

func median(seconds []float64) float64 {
	sorted := slices.Sorted(slices.Values(seconds))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}
