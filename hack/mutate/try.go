package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
)

type verdict string

const (
	noticed    verdict = "noticed"    // a test fails or hangs
	equivalent verdict = "equivalent" // listed in equivalent.txt
	survived   verdict = "SURVIVED"   // all tests pass
	invalid    verdict = "invalid"    // it does not compile
)

// furtherTests maps packages to the folder of further tests of them. These run when the tests in the package's own folder have noticed nothing.
var furtherTests = map[string]string{"plugins": "./test/plugins", "plugins/sharing": "./test/plugins"}

// pack is a package that is mutated.
type pack struct {
	folder string // relative to the root of the module
	files  []string
	tests  bool // whether there are tests in its folder
}

// listPackages returns the packages that match the patterns of the go command.
func listPackages(ctx context.Context, patterns []string) ([]*pack, error) {
	out, err := exec.CommandContext(ctx, "go", append([]string{"list", "-json=Dir,GoFiles,TestGoFiles,XTestGoFiles,Module"}, patterns...)...).Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			err = fmt.Errorf("%w: %s", err, exit.Stderr)
		}
		return nil, fmt.Errorf("list packages: %w", err)
	}
	var packages []*pack
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p struct {
			Dir                                string
			GoFiles, TestGoFiles, XTestGoFiles []string
			Module                             struct{ Dir string }
		}
		if err := d.Decode(&p); err == io.EOF {
			return packages, nil
		} else if err != nil {
			return nil, err
		}
		folder, err := filepath.Rel(p.Module.Dir, p.Dir)
		if err != nil {
			return nil, err
		}
		packages = append(packages, &pack{folder, p.GoFiles, len(p.TestGoFiles)+len(p.XTestGoFiles) > 0})
	}
}

func (p *pack) mutations() ([]mutation, error) {
	var all []mutation
	for _, name := range p.files {
		found, err := readMutations(filepath.Join(p.folder, name))
		if err != nil {
			return nil, err
		}
		for _, m := range found {
			m.pack = p
			all = append(all, m)
		}
	}
	return all, nil
}

// tryAll finds the verdict on each mutation and reports it as soon as it is known.
func tryAll(ctx context.Context, all []mutation, o options, report func(mutation, verdict, string)) {
	byPackage := map[*pack][]mutation{}
	var order []*pack
	for _, m := range all {
		if byPackage[m.pack] == nil {
			order = append(order, m.pack)
		}
		byPackage[m.pack] = append(byPackage[m.pack], m)
	}
	for _, p := range order {
		if ctx.Err() != nil {
			return
		}
		var single, together []mutation
		for _, m := range byPackage[p] {
			if m.combines {
				together = append(together, m)
			} else {
				single = append(single, m)
			}
		}
		c, invalidOnes, err := (*combined)(nil), []int(nil), error(nil)
		if len(together) > 0 {
			if c, invalidOnes, err = combine(ctx, p, together, o.timeout); err != nil {
				fmt.Fprintln(os.Stderr, "mutate: each on its own:", err)
				single, together = append(single, together...), nil
			}
		}
		inParallel(o.workers, len(together), func(i int) {
			if slices.Contains(invalidOnes, i) {
				report(together[i], invalid, "does not compile")
				return
			}
			v, why := c.test(ctx, i)
			report(together[i], v, why)
		})
		if c != nil {
			os.RemoveAll(c.work)
		}
		inParallel(o.workers, len(single), func(i int) {
			v, why := try(ctx, single[i], o.timeout)
			report(single[i], v, why)
		})
	}
}

// inParallel calls f with 0 to n-1, several at a time.
func inParallel(workers, n int, f func(int)) {
	var group errgroup.Group
	group.SetLimit(workers)
	for i := range n {
		group.Go(func() error { f(i); return nil })
	}
	_ = group.Wait()
}

// try runs the tests of a mutation's package, and then any further tests of it, until one notices the mutation. It returns the verdict, and the
// test that noticed.
func try(ctx context.Context, m mutation, timeout time.Duration) (verdict, string) {
	work, err := os.MkdirTemp("", "mutate")
	if err != nil {
		return survived, err.Error()
	}
	defer os.RemoveAll(work)
	overlay, err := writeOverlay(work, m)
	if err != nil {
		return survived, err.Error()
	}
	suites := []string{"./" + m.pack.folder, furtherTests[m.pack.folder]}
	if !m.pack.tests {
		suites[0] = ""
	}
	for _, suite := range suites {
		if suite == "" {
			continue
		}
		if v, why := test(ctx, suite, overlay, timeout); v != survived {
			return v, why
		}
	}
	return survived, "no test failed"
}

// test runs one package's short tests. The long ones are not part of CI.
func test(ctx context.Context, suite, overlay string, timeout time.Duration) (verdict, string) {
	ctx, cancel := context.WithTimeout(ctx, timeout+5*time.Minute) // in addition to the tests' own limit, for compiling and for processes that tests leave behind
	defer cancel()
	c := exec.CommandContext(ctx, "go", "test", "-overlay", overlay, "-vet=off", "-count=1", "-failfast", "-timeout", timeout.String(), suite)
	c.Env = append(os.Environ(), "GOFLAGS=-buildvcs=false")
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.Cancel = func() error { return syscall.Kill(-c.Process.Pid, syscall.SIGKILL) }
	c.WaitDelay = 10 * time.Second
	out, err := c.CombinedOutput()
	if err == nil {
		return survived, ""
	}
	if bytes.Contains(out, []byte("[build failed]")) || bytes.Contains(out, []byte("[setup failed]")) {
		return invalid, "does not compile"
	}
	return noticed, reason(out)
}

// reason returns the name of the failed test, or the panic, from the output of a test binary.
func reason(out []byte) string {
	if found := failure.FindSubmatch(out); found != nil {
		return cmp.Or(string(found[1]), string(found[2]), string(found[3]))
	}
	return "the test binary failed"
}

var failure = regexp.MustCompile(`(?m)^--- FAIL: (\S+)|^panic: (test timed out)|^(?:panic|fatal error): ([^\n]{0,60})`)

// writeOverlay writes the mutated file, and the overlay file that makes the go command read it in place of the original.
func writeOverlay(work string, m mutation) (string, error) {
	source, err := os.ReadFile(m.file)
	if err != nil {
		return "", err
	}
	original, err := filepath.Abs(m.file)
	if err != nil {
		return "", err
	}
	changed := filepath.Join(work, "mutant.go")
	text := string(source[:m.start]) + m.text + string(source[m.end:])
	if err := os.WriteFile(changed, []byte(text), 0o600); err != nil {
		return "", err
	}
	description, err := json.Marshal(map[string]map[string]string{"Replace": {original: changed}})
	if err != nil {
		return "", err
	}
	overlay := filepath.Join(work, "overlay.json")
	return overlay, os.WriteFile(overlay, description, 0o600)
}

// equivalents maps the id of a mutation that changes nothing observable to the reason.
type equivalents map[string]string

// readEquivalents reads a file of lines "ID  # reason"; empty lines and those that begin with # are comments.
func readEquivalents(path string) (equivalents, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	known := equivalents{}
	for number, line := range strings.Split(string(text), "\n") {
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		id, reason, ok := strings.Cut(line, "  # ")
		if !ok || reason == "" {
			return nil, fmt.Errorf("%s:%d: no reason", path, number+1)
		}
		known[strings.TrimSpace(id)] = reason
	}
	return known, nil
}

var survivor = regexp.MustCompile(`(?m)^SURVIVED +(\S+):\d+ (.*)  \[.*\]$`)

// readSurvivors returns the ids of the mutations that the output of an earlier run lists as survived.
func readSurvivors(path string) (map[string]bool, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	ids := map[string]bool{}
	for _, found := range survivor.FindAllStringSubmatch(string(text), -1) {
		ids[found[1]+" "+found[2]] = true
	}
	return ids, nil
}
