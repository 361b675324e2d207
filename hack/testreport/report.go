package main

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/gshare-dev/gshare/hack/testevent"
)

// modulePrefix is the part of the import paths that the report omits.
const modulePrefix = "github.com/gshare-dev/gshare/"

// report prints the result of each package and counts passed, failed and skipped tests. A test with subtests is not counted itself, but its
// subtests are, unless it fails or is skipped itself.
type report struct {
	out                     io.Writer
	passed, failed, skipped int
	packages                map[string]*packageRun
	builds                  map[string]string // what the compiler printed, by ImportPath
	skips                   []skip
	stage                   string
	slowest                 []duration
	stages                  []string // a line from hack/test.sh for each, with the time that it took
}

// duration is how long the tests of a package took in a stage.
type duration struct {
	stage, name string
	seconds     float64
}

// slowestShown is how many of the slowest packages the report shows.
const slowestShown = 10

// packageRun is the state of a package whose tests are running. The output of a test is dropped as soon as the test has passed.
type packageRun struct {
	output                  map[string]*strings.Builder // by name of the test; "" is the package itself
	children                map[string]bool             // tests that have subtests
	failedBelow             map[string]bool             // tests of which a subtest failed
	passed, failed, skipped int
}

type skip struct{ test, reason string }

func newReport(out io.Writer) *report {
	return &report{out: out, packages: map[string]*packageRun{}, builds: map[string]string{}}
}

// readEvents processes the events of "go test -json" until the end of the input. It prints lines that are not events unchanged.
func (r *report) readEvents(in io.Reader) error {
	return testevent.Read(in, r.handle, func(line string) { fmt.Fprint(r.out, line) })
}

func (r *report) handle(e testevent.Event) {
	switch e.Action { // hack/test.sh writes stage and spent
	case "stage":
		r.stage = e.Output
	case "spent":
		r.stages = append(r.stages, e.Output)
	}
	if e.Action == "build-output" {
		r.builds[e.ImportPath] += e.Output
	}
	if e.Package == "" {
		return
	}
	p := r.packages[e.Package]
	if p == nil {
		p = &packageRun{output: map[string]*strings.Builder{}, children: map[string]bool{}, failedBelow: map[string]bool{}}
		r.packages[e.Package] = p
	}
	switch e.Action {
	case "run":
		for _, parent := range testevent.Parents(e.Test) {
			p.children[parent] = true
		}
	case "output":
		if p.output[e.Test] == nil {
			p.output[e.Test] = &strings.Builder{}
		}
		p.output[e.Test].WriteString(e.Output)
	case "pass", "fail", "skip":
		if e.Test == "" {
			r.finishPackage(p, e)
		} else {
			r.finishTest(p, e)
		}
	}
}

func (r *report) finishTest(p *packageRun, e testevent.Event) {
	name := trim(e.Package) + "." + e.Test
	switch e.Action {
	case "pass":
		if !p.children[e.Test] {
			p.passed++
		}
	case "skip":
		p.skipped++
		r.skips = append(r.skips, skip{name, skipReason(p.take(e.Test))})
	case "fail":
		if !p.failedBelow[e.Test] {
			p.failed++
		}
		for _, parent := range testevent.Parents(e.Test) {
			p.failedBelow[parent] = true
		}
		fmt.Fprintf(r.out, "--- %s\n%s", name, p.take(e.Test))
	}
	delete(p.output, e.Test)
}

// finishPackage prints the result of a package. If a package failed without a failed test, because it did not build or crashed, it counts as one
// failure, and its remaining output is printed.
func (r *report) finishPackage(p *packageRun, e testevent.Event) {
	delete(r.packages, e.Package)
	name := trim(e.Package)
	r.slowest = append(r.slowest, duration{r.stage, name, e.Elapsed})
	switch {
	case e.Action == "fail":
		if p.failed == 0 {
			p.failed = 1
			fmt.Fprint(r.out, r.builds[e.FailedBuild])
			for test := range p.output {
				fmt.Fprint(r.out, p.take(test))
			}
		}
		fmt.Fprintf(r.out, "FAIL  %-40s %7.2fs  %d of %d\n", name, e.Elapsed, p.failed, p.passed+p.failed)
	case p.passed+p.skipped == 0:
		fmt.Fprintf(r.out, "-     %-40s           no tests\n", name)
	default:
		fmt.Fprintf(r.out, "ok    %-40s %7.2fs  %d%s\n", name, e.Elapsed, p.passed, cached(p.take("")))
	}
	r.passed += p.passed
	r.failed += p.failed
	r.skipped += p.skipped
}

// finish prints the skipped tests, the time of each stage, the slowest packages and the totals, and reports whether everything passed. If
// strict, skipped tests that are not in the allow list are failures.
func (r *report) finish(allowed allowList, strict bool) bool {
	ok := true
	for name := range r.packages {
		fmt.Fprintf(r.out, "FAIL  %-40s           never ended\n", trim(name))
		r.failed++
	}
	for _, s := range r.skips {
		verdict := "skipped"
		if strict && !allowed.allows(s.test) {
			verdict, ok = "skipped, not allowed", false
		}
		fmt.Fprintf(r.out, "%s: %s: %s\n", verdict, s.test, s.reason)
	}
	if len(r.stages) > 0 {
		fmt.Fprintln(r.out, "stages:")
		for _, s := range r.stages {
			fmt.Fprintln(r.out, s)
		}
	}
	r.printSlowest()
	if r.passed+r.failed+r.skipped == 0 {
		fmt.Fprintln(r.out, "no test ran")
		ok = false
	}
	fmt.Fprintf(r.out, "%d passed, %d failed, %d skipped\n", r.passed, r.failed, r.skipped)
	return ok && r.failed == 0
}

// printSlowest prints the packages that took longest, if any took a second.
func (r *report) printSlowest() {
	slices.SortStableFunc(r.slowest, func(a, b duration) int { return cmp.Compare(b.seconds, a.seconds) })
	for i, d := range r.slowest[:min(slowestShown, len(r.slowest))] {
		if d.seconds < 1 {
			return
		}
		if i == 0 {
			fmt.Fprintln(r.out, "slowest:")
		}
		fmt.Fprintf(r.out, "%7.2fs  %-12s %s\n", d.seconds, d.stage, d.name)
	}
}

func (p *packageRun) take(test string) string {
	if p.output[test] == nil {
		return ""
	}
	return p.output[test].String()
}

// skipReason returns the message of a skipped test from its output.
func skipReason(output string) string {
	var said []string
	for line := range strings.Lines(output) {
		line = strings.TrimSpace(line)
		if line != "" && !strings.HasPrefix(line, "=== ") && !strings.HasPrefix(line, "--- ") {
			said = append(said, line)
		}
	}
	return strings.Join(said, " ")
}

func cached(output string) string {
	if strings.Contains(output, "(cached)") {
		return " (cached)"
	}
	return ""
}

func trim(name string) string { return strings.TrimPrefix(name, modulePrefix) }

// allowList holds patterns of the tests that may be skipped, as package.Test. A pattern may end in *.
type allowList []string

// readAllowList parses a file with one pattern per line, followed by the reason why the test may be skipped. Lines that begin with # are
// comments.
func readAllowList(in io.Reader) (allowList, error) {
	var list allowList
	lines := bufio.NewScanner(in)
	for number := 1; lines.Scan(); number++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if len(strings.Fields(line)) < 2 {
			return nil, fmt.Errorf("line %d: %q has no reason", number, line)
		}
		list = append(list, strings.Fields(line)[0])
	}
	return list, lines.Err()
}

func (l allowList) allows(test string) bool {
	for _, pattern := range l {
		prefix, open := strings.CutSuffix(pattern, "*")
		if pattern == test || open && strings.HasPrefix(test, prefix) {
			return true
		}
	}
	return false
}
