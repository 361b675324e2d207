package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
)

// modulePrefix is the part of the import paths that the output omits.
const modulePrefix = "github.com/gshare-dev/gshare/"

// suite is the test binary of a package with the flags with which CI runs it.
type suite struct {
	pkg     string // import path
	folder  string // of the package, where its tests run
	binary  string
	race    bool
	alone   bool     // in CI, the packages of its stage run one at a time
	args    []string // of the binary
	timeout time.Duration
}

func (s *suite) String() string {
	name := strings.TrimPrefix(s.pkg, modulePrefix)
	if s.race {
		name += " -race"
	}
	return name
}

// reproduce returns the arguments with which go test runs the suite in the order of the seed.
func (s *suite) reproduce(seed int64) string {
	flags := fmt.Sprint("-count=1 -shuffle=", seed)
	if s.race {
		flags += " -race"
	}
	for _, arg := range s.args {
		flags += " -" + strings.TrimPrefix(arg, "-test.")
	}
	return flags + " ./" + strings.TrimPrefix(s.pkg, modulePrefix)
}

// readSuites parses the output of hack/test.sh list: on each line flags of go test, then a package. It limits the timeout of each suite to the
// given one.
func readSuites(in io.Reader, timeout time.Duration) ([]*suite, error) {
	var suites []*suite
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		flags := flag.NewFlagSet("line", flag.ContinueOnError)
		flags.SetOutput(io.Discard)
		race, short, run := flags.Bool("race", false, ""), flags.Bool("short", false, ""), flags.String("run", "", "")
		atOnce, allowed := flags.Int("p", 0, ""), flags.Duration("timeout", 10*time.Minute, "") // the default of go test
		flags.Int("count", 1, "")                                                               // keeps CI from using an earlier result
		if err := flags.Parse(strings.Fields(lines.Text())); err != nil {
			return nil, fmt.Errorf("%q: %w", lines.Text(), err)
		}
		if flags.NArg() != 1 {
			return nil, fmt.Errorf("%q: want flags and one package", lines.Text())
		}
		s := &suite{pkg: flags.Arg(0), race: *race, alone: *atOnce == 1, timeout: min(*allowed, timeout)}
		if *short {
			s.args = append(s.args, "-test.short")
		}
		if *run != "" {
			s.args = append(s.args, "-test.run="+*run)
		}
		suites = append(suites, s)
	}
	return suites, lines.Err()
}

// match finds the folders of the suites' packages. If there are patterns, it drops the suites whose packages match none of them, and fails if a
// pattern matches no suite's package.
func match(ctx context.Context, suites []*suite, patterns []string) ([]*suite, error) {
	folders, err := list(ctx, "./...")
	if err != nil {
		return nil, err
	}
	for _, s := range suites {
		if s.folder = folders[s.pkg]; s.folder == "" {
			return nil, fmt.Errorf("package %s does not exist", s.pkg)
		}
	}
	if len(patterns) == 0 {
		return suites, nil
	}
	wanted := map[string]bool{}
	for _, pattern := range patterns {
		found, err := list(ctx, pattern)
		if err != nil {
			return nil, err
		}
		if !slices.ContainsFunc(suites, func(s *suite) bool { return found[s.pkg] != "" }) {
			return nil, fmt.Errorf("CI runs no tests of %s", pattern)
		}
		for pkg := range found {
			wanted[pkg] = true
		}
	}
	return slices.DeleteFunc(suites, func(s *suite) bool { return !wanted[s.pkg] }), nil
}

// list returns the folders of the packages that match the pattern, by import path.
func list(ctx context.Context, pattern string) (map[string]string, error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-f", "{{.ImportPath}}\t{{.Dir}}", pattern).Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			err = fmt.Errorf("%w: %s", err, exit.Stderr)
		}
		return nil, fmt.Errorf("list packages: %w", err)
	}
	folders := map[string]string{}
	for line := range strings.Lines(string(out)) {
		pkg, folder, _ := strings.Cut(strings.TrimSpace(line), "\t")
		folders[pkg] = folder
	}
	return folders, nil
}

// compileAll compiles the suites' binaries into the folder, two at the same time, and returns the suites that have tests. prefix is a command
// line that is put before the go command; it may be empty.
func compileAll(ctx context.Context, suites []*suite, folder string, prefix []string) ([]*suite, error) {
	builds, ctx := errgroup.WithContext(ctx)
	builds.SetLimit(2)
	for i, s := range suites {
		s.binary = filepath.Join(folder, strconv.Itoa(i), path.Base(s.pkg)+".test")
		builds.Go(func() error { return s.compile(ctx, prefix) })
	}
	if err := builds.Wait(); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(suites, func(s *suite) bool {
		_, err := os.Stat(s.binary)
		return err != nil // a package without test files gets no binary
	}), nil
}

func (s *suite) compile(ctx context.Context, prefix []string) error {
	// Like go test, omit the tables for debuggers, which take most of the time and disk space.
	command := append(slices.Clone(prefix), "go", "test", "-c", "-vet=off", "-ldflags=-s -w", "-o", s.binary)
	if s.race {
		command = append(command, "-race")
	}
	command = append(command, s.pkg)
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Dir = s.folder
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("compile the tests of %s: %w\n%s", s, err, out)
	}
	return nil
}
