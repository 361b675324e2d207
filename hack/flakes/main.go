// Command flakes looks for tests that fail now and then. It compiles the test binaries of packages once and runs them again and again until a
// time has passed: beside busy processes, in random order of packages and of the tests in each. The next package is always one of those with the
// fewest runs. It prints how often each package ran and each test that failed at least once, with its first output and the seed of that run's
// order. It fails if there is any.
//
// The packages and their flags are read from standard input in the format of hack/test.sh list, so that each runs as CI runs it. Arguments are
// patterns as of go list, and select packages.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

func main() {
	bound := flag.Duration("for", 20*time.Minute, "how long to start runs; those that run then may end")
	timeout := flag.Duration("timeout", 40*time.Minute, "how long a run may take, where CI does not allow less")
	busy := flag.Int("busy", 8, "number of busy processes beside the tests")
	atOnce := flag.Int("at-once", 2, "how many packages run at the same time")
	compile := flag.String("compile", "", "command to put before the go command when it compiles, like `env GOGC=off`")
	flag.Parse()
	// The first Ctrl-C ends the runs, and what they have found is printed; the second ends this program.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	failed, err := find(ctx, *bound, *busy, *atOnce, *timeout, strings.Fields(*compile), flag.Args())
	if err != nil {
		fmt.Fprintln(os.Stderr, "flakes:", err)
		os.Exit(2)
	}
	if failed {
		os.Exit(1)
	}
}

// find runs the tests and prints the summary. It reports whether a test failed.
func find(ctx context.Context, bound time.Duration, busy, atOnce int, timeout time.Duration, compile, patterns []string) (failed bool, err error) {
	suites, err := readSuites(os.Stdin, timeout)
	if err != nil {
		return false, err
	}
	if suites, err = match(ctx, suites, patterns); err != nil {
		return false, err
	}
	folder, err := os.MkdirTemp("", "flakes")
	if err != nil {
		return false, err
	}
	defer os.RemoveAll(folder)
	start := time.Now()
	if suites, err = compileAll(ctx, suites, folder, compile); err != nil {
		return false, err
	}
	fmt.Printf("%d test binaries compiled in %.0fs\n", len(suites), time.Since(start).Seconds())

	r, err := newRunner(ctx, atOnce, 30*time.Second)
	if err != nil {
		return false, err
	}
	l, err := startLoad(busy)
	if err != nil {
		return false, err
	}
	defer l.stop()
	bounded, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	s := newSummary()
	r.runAll(ctx, bounded, suites, func(r result) {
		s.add(r)
		fmt.Println(r)
	})
	return s.print(os.Stdout), nil
}
