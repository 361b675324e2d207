package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// planted is a module whose packages fail, hang or are in order.
var planted = map[string]string{
	"go.mod": "module planted\n\ngo 1.26\n",
	// The count of runs makes what looks random the same each time.
	"rare/rare_test.go": `package rare

import ("os"; "testing")

func TestRare(t *testing.T) {
	f, err := os.OpenFile("runs", os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil { t.Fatal(err) }
	f.WriteString("x")
	f.Close()
	info, _ := os.Stat("runs")
	t.Run("case", func(t *testing.T) {
		if info.Size() % 50 == 25 { t.Error("one in fifty") }
	})
}

func TestOther(t *testing.T) {}
`,
	"hangs/hangs_test.go": `package hangs

import "testing"

func TestEnds(t *testing.T) {}
func TestHangs(t *testing.T) { t.Log("waiting"); select {} }
`,
	"stuck/stuck_test.go": `package stuck

import ("os"; "testing")

func TestMain(m *testing.M) { m.Run(); println("clean up"); r, _, _ := os.Pipe(); r.Read(make([]byte, 1)) }
func TestEnds(t *testing.T) {}
`,
	"killed/killed_test.go": `package killed

import ("syscall"; "testing")

func TestKilled(t *testing.T) { syscall.Kill(syscall.Getpid(), syscall.SIGKILL) }
`,
	"panics/panics_test.go": `package panics

import "testing"

func TestPanics(t *testing.T) { t.Run("sub", func(t *testing.T) { panic("oh") }) }
`,
	"clean/clean_test.go": `package clean

import "testing"

func TestA(t *testing.T) {}
func TestB(t *testing.T) { if !testing.Short() { t.Error("-short is missing") } }
`,
	"none/none.go": "package none\n",
}

func plant(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("compiles programs")
	}
	t.Chdir(t.TempDir())
	for name, text := range planted {
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// compilePlanted compiles the suite of the line.
func compilePlanted(t *testing.T, line string, timeout time.Duration) (runner, []*suite) {
	t.Helper()
	suites, err := readSuites(strings.NewReader(line), timeout)
	if err != nil {
		t.Fatal(err)
	}
	if suites, err = match(t.Context(), suites, nil); err != nil {
		t.Fatal(err)
	}
	if suites, err = compileAll(t.Context(), suites, t.TempDir(), nil); err != nil {
		t.Fatal(err)
	}
	r, err := newRunner(t.Context(), 2, 7*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	return r, suites
}

// runPlanted compiles the suite of the line and runs it n times. It returns the summary, and whether it says that tests failed.
func runPlanted(t *testing.T, line string, timeout time.Duration, n int) (text string, failed bool) {
	t.Helper()
	r, suites := compilePlanted(t, line, timeout)
	s := newSummary()
	bounded, enough := context.WithCancel(t.Context())
	defer enough()
	ended := 0
	r.runAll(t.Context(), bounded, suites, func(r result) {
		s.add(r)
		if ended++; ended == n {
			enough()
		}
	})
	var out strings.Builder
	failed = s.print(&out)
	return out.String(), failed
}

func TestFind(t *testing.T) {
	plant(t)
	for _, test := range []struct {
		line    string
		timeout time.Duration
		runs    int
		want    []string
		without string
		failed  bool
	}{
		{line: "planted/rare", timeout: time.Minute, runs: 50, failed: true, without: "TestOther",
			want: []string{"FAIL planted/rare TestRare/case: 1 of 50 runs; the first: go test -count=1 -shuffle=", "one in fifty", "1 tests failed"}},
		{line: "planted/hangs", timeout: 5 * time.Second, runs: 1, failed: true, without: "TestEnds,",
			want: []string{"FAIL planted/hangs (package): 1 of 1 runs", "ended while running TestHangs", "waiting", "goroutine"}},
		{line: "planted/stuck", timeout: 3 * time.Second, runs: 1, failed: true,
			want: []string{"FAIL planted/stuck (package): 1 of 1 runs", "clean up", "SIGQUIT"}},
		{line: "planted/killed", timeout: time.Minute, runs: 1, failed: true, want: []string{"FAIL planted/killed (package)", "ended while running TestKilled"}},
		{line: "planted/panics", timeout: time.Minute, runs: 1, failed: true, without: "(package)",
			want: []string{"FAIL planted/panics TestPanics/sub: 1 of 1 runs", "panic: oh"}},
		{line: "-race -short planted/clean", timeout: time.Minute, runs: 2, without: "FAIL ", want: []string{"planted/clean -race", "2 runs of 1 packages, 0 tests failed"}},
		{line: "-run ^TestA$ planted/clean", timeout: time.Minute, runs: 2, without: "FAIL ", want: []string{"0 tests failed"}},
		{line: "planted/none", failed: true, want: []string{"0 runs of 0 packages"}},
	} {
		t.Run(test.line, func(t *testing.T) {
			if strings.Contains(test.line, "-race") {
				if _, err := exec.LookPath("gcc"); err != nil {
					t.Skip("gcc is not installed")
				}
			}
			text, failed := runPlanted(t, test.line, test.timeout, test.runs)
			if failed != test.failed {
				t.Errorf("failed = %t, want %t", failed, test.failed)
			}
			for _, want := range test.want {
				if !strings.Contains(text, want) {
					t.Errorf("no %q in:\n%s", want, text)
				}
			}
			if test.without != "" && strings.Contains(text, test.without) {
				t.Errorf("%q in:\n%s", test.without, text)
			}
		})
	}
}

func TestMatch(t *testing.T) {
	plant(t)
	suites, err := readSuites(strings.NewReader("-count=1 -p 1 -timeout 20m -short planted/clean\n-race planted/hangs\nplanted/rare\n"), 15*time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	for pattern, want := range map[string]string{
		"": "[planted/clean planted/hangs -race planted/rare]", "./rare": "[planted/rare]", "./...": "[planted/clean planted/hangs -race planted/rare]",
		"planted/h...": "[planted/hangs -race]", "./none": "CI runs no tests of ./none",
	} {
		t.Run(pattern, func(t *testing.T) {
			got, err := match(t.Context(), slices.Clone(suites), strings.Fields(pattern))
			text := fmt.Sprint(got)
			if err != nil {
				text = err.Error()
			}
			if text != want {
				t.Errorf("%s, want %s", text, want)
			}
		})
	}
	if s := suites[0]; !s.alone || s.timeout != 15*time.Minute || !slices.Equal(s.args, []string{"-test.short"}) || filepath.Base(s.folder) != "clean" {
		t.Errorf("suite %+v", *s)
	}
	if s := suites[1]; s.alone || !s.race || s.timeout != 10*time.Minute || len(s.args) > 0 {
		t.Errorf("suite %+v", *s)
	}
	for _, line := range []string{"planted/clean -race", "-full planted/clean", "-race"} {
		if _, err := readSuites(strings.NewReader(line), 0); err == nil {
			t.Errorf("%q was accepted", line)
		}
	}
}

// TestInterrupt ends a run in the middle: it has no result.
func TestInterrupt(t *testing.T) {
	plant(t)
	r, suites := compilePlanted(t, "planted/hangs", time.Minute)
	ctx, interrupt := context.WithTimeout(t.Context(), time.Second)
	defer interrupt()
	r.runAll(ctx, ctx, suites, func(r result) { t.Errorf("result %v", r) })
}

// TestNext draws so often that each suite that may be next is drawn.
func TestNext(t *testing.T) {
	a, b, c, d := &suite{pkg: "a", alone: true}, &suite{pkg: "b", alone: true}, &suite{pkg: "c"}, &suite{pkg: "d"}
	suites := []*suite{a, b, c, d}
	for name, test := range map[string]struct {
		runs    map[*suite]int
		running []*suite
		want    string
	}{
		"at the start":             {want: "[a b c d]"},
		"the fewest runs":          {runs: map[*suite]int{a: 2, b: 1, c: 2, d: 1}, want: "[b d]"},
		"beside one that is alone": {running: []*suite{a}, want: "[c d]"},
		"beside one that is not":   {running: []*suite{c}, want: "[a b d]"},
		"of those that may":        {runs: map[*suite]int{c: 3, d: 2}, running: []*suite{a}, want: "[d]"},
		"none":                     {running: []*suite{a, c, d}, want: "[]"},
	} {
		t.Run(name, func(t *testing.T) {
			running := map[*suite]bool{}
			for _, s := range test.running {
				running[s] = true
			}
			drawn := map[string]bool{}
			for range 200 {
				if s := next(suites, test.runs, running); s != nil {
					drawn[s.pkg] = true
				}
			}
			if got := fmt.Sprint(slices.Sorted(maps.Keys(drawn))); got != test.want {
				t.Errorf("%s, want %s", got, test.want)
			}
		})
	}
}

// TestLoadEnds: the processes end when they are stopped, and when the program that started them is killed.
func TestLoadEnds(t *testing.T) {
	t.Run("stopped", func(t *testing.T) {
		l, err := startLoad(3)
		if err != nil {
			t.Fatal(err)
		}
		if len(l) != 3 {
			t.Errorf("%d processes, want 3", len(l))
		}
		for _, cmd := range l {
			if err := cmd.Process.Signal(syscall.Signal(0)); err != nil {
				t.Errorf("process %d: %v", cmd.Process.Pid, err)
			}
		}
		l.stop()
		for _, cmd := range l {
			if cmd.ProcessState == nil {
				t.Errorf("process %d is left", cmd.Process.Pid)
			}
		}
	})
	t.Run("parent killed", func(t *testing.T) {
		// The shell is the parent. A read of the pipe ends when the last process that can write to it has ended.
		out, in, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer out.Close()
		parent := exec.Command("bash", "-c", `bash -c "$0" $$ & echo; wait`, spin)
		parent.Stdout = in
		err = parent.Start()
		in.Close()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := out.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		_ = parent.Process.Kill()
		_ = parent.Wait()
		if n, err := out.Read(make([]byte, 1)); n != 0 || err != io.EOF {
			t.Errorf("read %d, %v", n, err)
		}
	})
}

func TestSummary(t *testing.T) {
	s := newSummary()
	p := &suite{pkg: modulePrefix + "vgpu/x", race: true, args: []string{"-test.short"}}
	for i, seconds := range []float64{3, 1, 2, 10} {
		r := result{suite: p, seed: int64(i), seconds: seconds}
		if i > 1 {
			r.failures = []failure{{"TestA", strings.Repeat("line\n", outputLines+i)}}
		}
		s.add(r)
	}
	var out strings.Builder
	if !s.print(&out) {
		t.Error("no failure reported")
	}
	for _, want := range []string{
		"vgpu/x -race                                            4      2     2.50s\n",
		"FAIL vgpu/x -race TestA: 2 of 4 runs; the first: go test -count=1 -shuffle=2 -race -short ./vgpu/x\nline\n", "... and 2 more lines\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in:\n%s", want, out.String())
		}
	}
}
