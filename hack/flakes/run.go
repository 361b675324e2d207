package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/gshare-dev/gshare/hack/testevent"
)

// runner runs test binaries.
type runner struct {
	test2json string        // the program that "go tool test2json" runs
	atOnce    int           // how many packages run at the same time
	grace     time.Duration // how long a binary may take to end itself after its timeout, and then its output to end
}

// newRunner returns a runner. It asks the go command for the path of test2json, because starting test2json through the go command in each run
// would take longer than many tests.
func newRunner(ctx context.Context, atOnce int, grace time.Duration) (runner, error) {
	out, err := exec.CommandContext(ctx, "go", "tool", "-n", "test2json").Output()
	if err != nil {
		return runner{}, fmt.Errorf("find test2json: %w", err)
	}
	return runner{strings.TrimSpace(string(out)), atOnce, grace}, nil
}

// result is the result of one run of a suite's binary.
type result struct {
	suite    *suite
	seed     int64 // random seed of the order of the tests
	seconds  float64
	failures []failure
}

// failure is a test that failed. If no test did, or if the run was ended while tests were running, it is the whole package.
type failure struct {
	test   string // empty for the whole package
	output string
}

func (r result) String() string {
	verdict := "ok  "
	if len(r.failures) > 0 {
		verdict = "FAIL"
	}
	line := fmt.Sprintf("%s  %-45s %7.2fs", verdict, r.suite, r.seconds)
	for _, f := range r.failures {
		line += " " + testName(f.test)
	}
	return line
}

// testName returns the name to print of a failure's test.
func testName(test string) string {
	if test == "" {
		return "(package)"
	}
	return test
}

// runAll runs the suites until bounded ends, calls done with each result, and returns when the last run has ended. Runs that ctx interrupts have
// no result.
func (r runner) runAll(ctx, bounded context.Context, suites []*suite, done func(result)) {
	runs := map[*suite]int{}
	running := map[*suite]bool{}
	results := make(chan result)
	for {
		for len(running) < r.atOnce && bounded.Err() == nil {
			s := next(suites, runs, running)
			if s == nil {
				break
			}
			runs[s]++
			running[s] = true
			go func() { results <- r.run(ctx, s) }()
		}
		if len(running) == 0 {
			return
		}
		ended := <-results
		delete(running, ended.suite)
		if ctx.Err() == nil {
			done(ended)
		}
	}
}

// next returns a random suite among those that may start now and have the fewest runs, or nil if none may start. A suite does not run twice at
// the same time, and of the suites that have to run alone only one runs at a time.
func next(suites []*suite, runs map[*suite]int, running map[*suite]bool) *suite {
	var fewest []*suite
	for _, s := range suites {
		if !mayStart(s, running) || len(fewest) > 0 && runs[s] > runs[fewest[0]] {
			continue
		}
		if len(fewest) > 0 && runs[s] < runs[fewest[0]] {
			fewest = nil
		}
		fewest = append(fewest, s)
	}
	if len(fewest) == 0 {
		return nil
	}
	return fewest[rand.IntN(len(fewest))]
}

func mayStart(s *suite, running map[*suite]bool) bool {
	for other := range running {
		if other == s || other.alone && s.alone {
			return false
		}
	}
	return true
}

// run runs the binary once. At its timeout the binary ends itself and prints its goroutines. If it cannot, because it hangs outside of tests, it
// gets SIGQUIT to the same effect. In the end its whole process group is killed.
func (r runner) run(ctx context.Context, s *suite) result {
	ctx, cancel := context.WithTimeout(ctx, s.timeout+r.grace)
	defer cancel()
	seed := rand.Int64N(1 << 32)
	args := []string{
		"-t", "-p", s.pkg, s.binary,
		"-test.v=test2json", "-test.paniconexit0", fmt.Sprint("-test.timeout=", s.timeout), fmt.Sprint("-test.shuffle=", seed),
	}
	cmd := exec.CommandContext(ctx, r.test2json, append(args, s.args...)...)
	var out bytes.Buffer
	cmd.Dir, cmd.Stdout, cmd.Stderr = s.folder, &out, &out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGQUIT) }
	cmd.WaitDelay = r.grace
	start := time.Now()
	err := cmd.Run()
	seconds := time.Since(start).Seconds()
	if cmd.Process != nil {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	}
	return result{s, seed, seconds, failures(&out, err, ctx.Err() != nil)}
}

// failures reads the output of a run that ended with err. killed says whether the run was ended from outside. A test that fails only because a
// subtest failed is not reported.
func failures(out io.Reader, err error, killed bool) []failure {
	outputs := map[string]*strings.Builder{"": {}} // by name of the test; "" is the package
	running := map[string]bool{}
	failedBelow := map[string]bool{}
	var failed []string
	write := func(test, text string) {
		if outputs[test] == nil {
			outputs[test] = &strings.Builder{}
		}
		outputs[test].WriteString(text)
		killed = killed || strings.HasPrefix(text, "panic: test timed out after")
	}
	event := func(e testevent.Event) {
		switch {
		case e.Action == "output":
			write(e.Test, e.Output)
		case e.Test == "":
		case e.Action == "run":
			running[e.Test] = true
			write(e.Test, "")
		case e.Action == "pass", e.Action == "skip":
			delete(running, e.Test)
			outputs[e.Test].Reset()
		case e.Action == "fail" && strings.Contains(outputs[e.Test].String(), "--- FAIL: "+e.Test+" "): // without that line, the process ended before the test did
			delete(running, e.Test)
			if !failedBelow[e.Test] {
				failed = append(failed, e.Test)
			}
			for _, parent := range testevent.Parents(e.Test) {
				failedBelow[parent] = true
			}
		}
	}
	if err := testevent.Read(out, event, func(line string) { write("", line) }); err != nil {
		write("", err.Error()+"\n")
	}
	var found []failure
	for _, test := range failed {
		text := ""
		for _, name := range append(testevent.Parents(test), test) { // a subtest's panic is in the output of its parent
			text += outputs[name].String()
		}
		found = append(found, failure{test, text})
	}
	if err == nil || len(found) > 0 && !killed {
		return found
	}
	text := fmt.Sprintln(err)
	if tests := slices.Sorted(maps.Keys(running)); len(tests) > 0 {
		text = fmt.Sprintf("ended while running %s: %v\n", strings.Join(tests, ", "), err)
	}
	for _, test := range slices.Sorted(maps.Keys(outputs)) {
		if test == "" || running[test] {
			text += outputs[test].String()
		}
	}
	return append(found, failure{output: text})
}
