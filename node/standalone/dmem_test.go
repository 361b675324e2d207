package standalone

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gshare-dev/gshare/node/cgroup"
	"github.com/gshare-dev/gshare/node/dmem"
	"github.com/gshare-dev/gshare/vgpu/api/control"
)

// withDriver gives the node cgroups that are mere files, and a driver's program that does what the script says, besides noting its
// calls.
func withDriver(t *testing.T, script string) (change func(*Options), calls func() []string) {
	t.Helper()
	m, err := cgroup.Of(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	own, ok := m.Unified()
	if !ok {
		t.Skip("cgroups of version 2 are missing: ", own)
	}
	root := tempDir(t)
	program, notes := filepath.Join(root, "nvidia-smi"), filepath.Join(root, "calls")
	for _, err := range []error{
		os.MkdirAll(filepath.Join(root, own), 0o755),
		os.WriteFile(filepath.Join(root, "cgroup.controllers"), []byte("dmem\n"), 0o600),
		os.WriteFile(program, []byte("#!/bin/sh\necho \"$@\" >>"+notes+"\n"+script), 0o755),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	change = func(o *Options) { o.Groups, o.Memory = &Groups{root}, &dmem.Limiter{Program: program} }
	return change, func() (set []string) {
		text, _ := os.ReadFile(notes)
		for line := range strings.Lines(string(text)) {
			if strings.Contains(line, "--set") {
				set = append(set, strings.TrimSpace(line))
			}
		}
		return set
	}
}

// status is the report of the oldest run, as it is told.
func (n *Node) status() control.EnforcementStatus { return n.Status().Runs[0].Enforcement }

const loose = "a program that avoids hook and MPS is not limited in memory"

// TestDriverLimitsMemory: the driver limits each run that shares, by its cgroup; the enforcement status says so when that is confirmed, also
// that of a later agent. Who is alone on a device is not limited.
func TestDriverLimitsMemory(t *testing.T) {
	change, calls := withDriver(t, "echo 'hard limit: 1511 MiB'\n")
	dir := tempDir(t)
	n := newNode(t, dir, change)
	p := newProgram(t)
	mustAdmit(t, n, p, ask(30, 50, 1024))
	mustAdmit(t, n, newProgram(t), ask(100, 100, 1024))
	eventually(t, "the limit is confirmed", func() bool { return n.status().Memory == "dmem (1511 MiB), hook, MPS" })
	if slices.Contains(n.status().Missing, loose) {
		t.Errorf("%+v", n.status())
	}
	r := n.first()
	want := []string{"memory-limits --set --soft-limit 0 --hard-limit 1511 --namespace " + filepath.Join(n.Groups.root, r.Cgroup) + " -i GPU-0"}
	if got := calls(); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	n.Close()
	n = newNode(t, dir, change)
	if got := n.status().Memory; got != "dmem (1511 MiB), hook, MPS" {
		t.Errorf("after a restart: %q", got)
	}
	if got := calls(); !slices.Equal(got, want) {
		t.Errorf("after a restart: %q, want %q", got, want)
	}
}

// TestDriverRefusesLimits: what the driver has not confirmed is not claimed, and is tried again, by a later agent too.
func TestDriverRefusesLimits(t *testing.T) {
	ready := filepath.Join(tempDir(t), "ready")
	change, calls := withDriver(t, "[ $2 = --help ] || [ -e "+ready+" ] && echo 'hard limit: 1511 MiB'\n")
	dir := tempDir(t)
	n := newNode(t, dir, change)
	mustAdmit(t, n, newProgram(t), ask(30, 50, 1024))
	eventually(t, "it is asked", func() bool { return len(calls()) > 0 })
	n.Close()
	before := len(calls())
	n = newNode(t, dir, change)
	eventually(t, "it is asked again", func() bool { return len(calls()) > before })
	if got := n.status(); got.Memory != "hook, MPS" || !slices.Contains(got.Missing, loose) {
		t.Errorf("%+v", got)
	}
	if err := os.WriteFile(ready, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the limit is confirmed", func() bool { return n.status().Memory == "dmem (1511 MiB), hook, MPS" })
}

// TestDriverComesLater: that there are no limits is asked again for the next run.
func TestDriverComesLater(t *testing.T) {
	ready := filepath.Join(tempDir(t), "ready")
	change, _ := withDriver(t, "[ -e "+ready+" ] && echo 'hard limit: 1511 MiB'\n")
	n := newNode(t, tempDir(t), change)
	if _, err := n.memory.driver(); !errors.Is(err, dmem.ErrMissing) {
		t.Fatal(err)
	}
	if err := os.WriteFile(ready, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	mustAdmit(t, n, newProgram(t), ask(30, 50, 1024))
	eventually(t, "the limit is confirmed", func() bool { return n.status().Memory == "dmem (1511 MiB), hook, MPS" })
}

// words is a log that may be read while it is written.
type words struct {
	mu   sync.Mutex // guards text
	text strings.Builder
}

func (w *words) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.Write(p)
}

func (w *words) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.String()
}

func logTo(w *words) func(*Options) {
	return func(o *Options) { o.Log = slog.New(slog.NewTextHandler(w, nil)) }
}

// TestEndsBeforeLimit: that the cgroup of a run which has ended is gone is no fault. It is not asked for again: another may have it.
func TestEndsBeforeLimit(t *testing.T) {
	change, calls := withDriver(t, "[ $2 = --help ]\n")
	log := &words{}
	n := newNode(t, tempDir(t), change, logTo(log))
	gone := record{ID: "x", Cgroup: "/x", Devices: []string{"GPU-0"}}
	for _, again := range []bool{false, true} {
		if over := n.memory.tryLimit(&run{record: gone}, again); !over || len(calls()) != 1 || log.String() != "" {
			t.Errorf("%v, %q: %s", over, calls(), log)
		}
	}
}

// TestRefusalIsToldOnce: a driver that goes on refusing is asked again, and heard once, whatever it says.
func TestRefusalIsToldOnce(t *testing.T) {
	change, calls := withDriver(t, "[ $2 = --help ] || { echo error $$; exit 1; }\n")
	log := &words{}
	n := newNode(t, tempDir(t), change, logTo(log))
	mustAdmit(t, n, newProgram(t), ask(30, 50, 1024))
	eventually(t, "it is told", func() bool { return log.String() != "" })
	for range 2 {
		if n.memory.tryLimit(n.first(), true) {
			t.Error("it is over")
		}
	}
	if got := log.String(); strings.Count(got, "failed to limit device memory") != 1 || len(calls()) < 3 {
		t.Errorf("%q: %s", calls(), got)
	}
}

// TestPatience: who asks a driver in vain asks ever more seldom, but goes on.
func TestPatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start, at := time.Now(), []int(nil)
		retryWithBackoff(defaultTiming.period, func(again bool) bool {
			if at = append(at, int(time.Since(start).Seconds())); again != (len(at) > 1) {
				t.Errorf("question %d: again is %v", len(at), again)
			}
			return len(at) == 8
		})
		if want := []int{0, 2, 6, 14, 30, 62, 122, 182}; !slices.Equal(at, want) {
			t.Errorf("after %d seconds, want %d", at, want)
		}
	})
}

// TestNoDriverLimits: without cgroups, or with an older driver, no limit is asked for.
func TestNoDriverLimits(t *testing.T) {
	old, asked := withDriver(t, "exit 2\n")
	loner, none := withDriver(t, "echo 'hard limit: 1511 MiB'\n")
	for name, change := range map[string]func(*Options){"old driver": old, "no cgroups": func(o *Options) {
		loner(o)
		o.Groups = nil
	}} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, tempDir(t), change)
			mustAdmit(t, n, newProgram(t), ask(30, 50, 1024))
			if _, err := n.memory.driver(); err == nil {
				t.Errorf("%s: there are limits", name)
			}
			if got := n.status(); got.Memory != "hook, MPS" || !slices.Contains(got.Missing, loose) {
				t.Errorf("%s: %+v", name, got)
			}
		})
	}
	if got := append(asked(), none()...); len(got) > 0 {
		t.Errorf("asked %q", got)
	}
}

const leaves = "a program that its user takes out of its cgroup is not limited by dmem"

// TestLeavesDriverLimit: a user who can take a run out of its cgroup takes it out of the driver's limit, and the enforcement status says so.
func TestLeavesDriverLimit(t *testing.T) {
	change, _ := withDriver(t, "echo 'hard limit: 1511 MiB'\n")
	n := newNode(t, tempDir(t), change)
	mustAdmit(t, n, newProgram(t), ask(30, 50, 1024))
	eventually(t, "the limit is confirmed", func() bool { return strings.HasPrefix(n.status().Memory, "dmem") })
	if !slices.Contains(n.status().Missing, leaves) {
		t.Errorf("one's own: %+v", n.status())
	}
	r := &run{record: n.first().record}
	for dir := r.Cgroup; dir != "/"; {
		dir = filepath.Dir(dir)
		if err := os.WriteFile(filepath.Join(n.Groups.root, dir, "cgroup.procs"), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	r.UID++
	if got := n.enforcement.statusOf(r); slices.Contains(got.Missing, leaves) {
		t.Errorf("another's: %+v", got)
	}
}
