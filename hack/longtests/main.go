// Command longtests runs tests that take minutes, as many as fit into a budget of time, so that none of them is broken for long without anybody
// noticing. Its argument is a file that says of each test when it last passed. Those that the changes since then can break come first, then
// the others, the one that has waited longest first. Within a budget it leaves out tests that never passed, which would stop every change: they
// enter the file by a run without one (make e2e ARGS=NAME). It leaves out those that compare times, too, because other tests run beside it. It prints the events of "go test -json" and writes each pass into the file, which a commit
// may bring along.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

func main() {
	budget := flag.Duration("budget", 0, "start no test that would end later than this after the start, by its last time, and none that never passed or compares times; 0 runs all")
	only := flag.String("only", "", "run only the tests of the file whose package and name contain this")
	flag.Parse()
	if flag.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "usage: longtests [-budget 15m] [-only NAME] FILE")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, flag.Arg(0), *budget, *only); err != nil {
		fmt.Fprintln(os.Stderr, "longtests:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, file string, budget time.Duration, only string) error {
	content, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	list, err := parse(string(content))
	if err != nil {
		return fmt.Errorf("read %s: %w", file, err)
	}
	if err := checkComplete(ctx, list); err != nil {
		return err
	}
	tree := &tree{ctx: ctx, files: map[string][]string{}}
	for _, e := range list.entries {
		if e.affected, err = tree.affects(e); err != nil {
			return err
		}
	}
	head, err := output(ctx, "git", "rev-parse", "--short=10", "HEAD")
	if err != nil {
		return err
	}
	began, failed := time.Now(), 0
	binaries, err := os.MkdirTemp("", "longtests")
	if err != nil {
		return err
	}
	defer os.RemoveAll(binaries)
	for _, e := range list.order() {
		switch {
		case !strings.Contains(e.pkg+" "+e.test, only):
			continue
		case ctx.Err() != nil:
			return ctx.Err()
		case budget > 0 && (e.alone || e.commit == "-" || time.Since(began)+e.took > budget):
			fmt.Printf("not run: %s\n", e.state())
			continue
		}
		from := time.Now()
		err := e.run(ctx, binaries)
		if errors.Is(err, errSkipped) {
			continue // the report of the events says why
		}
		if err != nil {
			failed++
			fmt.Printf("failed: %s: %v\n", e.state(), err)
			continue
		}
		e.commit, e.day, e.took = head, time.Now().UTC().Format(time.DateOnly), time.Since(from).Round(time.Second)
		if err := os.WriteFile(file, []byte(list.String()), 0o644); err != nil {
			return err
		}
	}
	if failed > 0 {
		return fmt.Errorf("%d tests failed", failed)
	}
	return nil
}

// output runs a command and returns its standard output without the last line's end.
func output(ctx context.Context, name string, args ...string) (string, error) {
	command := exec.CommandContext(ctx, name, args...)
	command.Stderr = os.Stderr
	out, err := command.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w", command, err)
	}
	return strings.TrimRight(string(out), "\n"), nil
}
