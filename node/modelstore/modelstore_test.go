package modelstore

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gshare-dev/gshare/node/process"
	"github.com/gshare-dev/gshare/node/store"
	"github.com/gshare-dev/gshare/node/store/client"
	fakestore "github.com/gshare-dev/gshare/test/fake/store"
	rules "github.com/gshare-dev/gshare/vgpu/store"
)

// The test binary is also the program of the stores, by its first argument.
func TestMain(m *testing.M) {
	startTimeout, killTimeout = time.Minute, time.Minute // the machine may be busy
	if len(os.Args) == 4 && os.Args[1] == "open" {
		os.Exit(openAndDie(os.Args[2], os.Args[3]))
	}
	if len(os.Args) < 2 || os.Args[1] != "store" {
		os.Exit(m.Run())
	}
	if err := fakestore.Run(os.Args[2:]); err != nil {
		_, _ = os.Stderr.WriteString(err.Error() + "\n")
		os.Exit(1)
	}
}

var team = Store{Slice: "GPU-1", Namespace: "team"}

// node is a directory with stores, and its manager.
type node struct {
	*Manager
	t     *testing.T
	asked int // for survivors
}

func (n *node) survivors(Store) (store.Survivors, error) {
	n.asked++
	return store.Survivors{PIDs: []int{os.Getpid()}}, nil
}

func newNode(t *testing.T) *node {
	t.Helper()
	dir, err := os.MkdirTemp("", "gm") // short enough for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	n := &node{t: t}
	n.restart(dir)
	t.Cleanup(func() {
		if err := n.Stop(); err != nil {
			t.Error(err)
		}
	})
	return n
}

// restart replaces the manager, as by an agent that starts.
func (n *node) restart(dir string) {
	n.Manager = New(Config{Dir: dir, Grants: dir, Program: os.Args[0], AnswerTimeout: time.Minute, Log: slog.New(slog.DiscardHandler)})
}

func (n *node) open(s Store) {
	n.t.Helper()
	if err := n.Open(n.t.Context(), s, "GPU-1", n.survivors); err != nil {
		n.t.Fatal(err)
	}
}

// pid returns the PID of a store, 0 if none runs.
func (n *node) pid(s Store) int {
	p, runs := n.control(s.ID()).Holder()
	if !runs {
		return 0
	}
	defer p.Close()
	return p.PID
}

// serves reports whether programs can connect to a store.
func (n *node) serves(s Store) bool {
	c, err := client.Dial(n.t.Context(), filepath.Join(n.SocketDir(s), SocketName))
	if err != nil {
		return false
	}
	defer c.Close()
	_, err = c.Get(rules.Key{})
	return errors.Is(err, rules.ErrAbsent)
}

// signal sends a signal to a store, which must run: PID 0 would be the test's own process group. It returns the store's PID.
func (n *node) signal(s Store, number syscall.Signal) (pid int) {
	n.t.Helper()
	if pid = n.pid(s); pid == 0 {
		n.t.Fatal("no store runs")
	}
	if err := syscall.Kill(pid, number); err != nil {
		n.t.Fatal(err)
	}
	return pid
}

// hang stops a store, as if it hung.
func (n *node) hang(s Store) {
	n.t.Helper()
	n.AnswerTimeout = 200 * time.Millisecond
	pid := n.signal(s, syscall.SIGSTOP)
	for { // it may go on for a moment
		if stat, err := process.ReadFile(pid, "stat"); err != nil || strings.Contains(string(stat), ") T ") {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// kill kills a store.
func (n *node) kill(s Store) {
	n.t.Helper()
	n.signal(s, syscall.SIGKILL)
	for n.pid(s) != 0 {
		time.Sleep(time.Millisecond)
	}
}

func TestOneStore(t *testing.T) {
	n := newNode(t)
	n.open(team)
	first := n.pid(team)
	if first == 0 || !n.serves(team) || !n.Owns(first) {
		t.Fatalf("PID %d, serves %v, owned %v", first, n.serves(team), n.Owns(first))
	}
	n.open(team)
	if n.pid(team) != first {
		t.Error("a second store was started beside the first")
	}
	other := Store{Slice: "GPU-1", Namespace: "other"}
	n.open(other)
	if n.pid(other) == first || !n.serves(other) {
		t.Error("another namespace has the same store, or none")
	}
	if n.Owns(os.Getpid()) || n.Owns(1<<30) {
		t.Error("it owns strangers")
	}
	if sid, err := unix.Getsid(first); err != nil || sid != first {
		t.Errorf("session %d (%v): it ends with the agent's terminal", sid, err)
	}
	if err := n.Retain(func(id string) bool { return id == team.ID() }); err != nil {
		t.Fatal(err)
	}
	if n.pid(other) != 0 || n.pid(team) != first {
		t.Errorf("PIDs %d and %d, want the wanted one to stay", n.pid(other), n.pid(team))
	}
	if _, err := os.Stat(n.dir(other.ID())); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the directory of the ended store: %v", err)
	}
}

// TestRetainOn ends what nobody needs on the slice that is asked for, and what may be there. Whether a store of another slice ends does not matter.
func TestRetainOn(t *testing.T) {
	n := newNode(t)
	other, older := Store{Slice: "GPU-2", Namespace: "team"}, Store{Slice: "GPU-3", Namespace: "team"}
	for _, s := range []Store{team, other, older} {
		n.open(s)
	}
	if err := os.Remove(n.sliceFile(older.ID())); err != nil { // an earlier agent has written none
		t.Fatal(err)
	}
	none := func(string) bool { return false }
	if err := n.RetainOn([]string{"GPU-1"}, none); err != nil {
		t.Fatal(err)
	}
	if n.pid(team) != 0 || n.pid(older) != 0 || n.pid(other) == 0 {
		t.Errorf("PIDs %d, %d and %d, want only the last, of the other slice", n.pid(team), n.pid(older), n.pid(other))
	}
	if err := n.RetainOn([]string{"GPU-1", "GPU-2"}, none); err != nil || n.pid(other) != 0 {
		t.Errorf("%v; PID %d", err, n.pid(other))
	}
}

// TestRetainBesideHungStore: what Open does with a store that hangs delays no grants and releases on other slices.
func TestRetainBesideHungStore(t *testing.T) {
	n := newNode(t)
	n.open(team)
	n.hang(team)
	n.AnswerTimeout = 20 * time.Second
	opened := make(chan error)
	go func() { opened <- n.Open(t.Context(), team, "GPU-1", n.survivors) }()
	for n.lockOf(team.ID()).TryLock() {
		n.lockOf(team.ID()).Unlock()
		time.Sleep(time.Millisecond)
	}
	began := time.Now()
	all := func(string) bool { return true }
	if err := errors.Join(n.Retain(all), n.RetainOn([]string{"GPU-0"}, all)); err != nil || time.Since(began) > 10*time.Second {
		t.Errorf("%v after %v", err, time.Since(began))
	}
	n.signal(team, syscall.SIGCONT)
	if err := <-opened; err != nil {
		t.Error(err)
	}
}

// TestEndsLate: the end of a store that has not ended after SIGKILL is not waited for again, and is noticed when it comes, also between two
// attempts.
func TestEndsLate(t *testing.T) {
	for name, between := range map[string]func(*node){
		"while it is looked at": func(*node) {},
		"between attempts":      func(n *node) { n.kill(team) },
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			n.open(team)
			n.stuck[team.ID()] = n.pid(team)
			between(n)
			none := func(string) bool { return false }
			for err := n.Retain(none); err != nil; err = n.Retain(none) {
				if !errors.Is(err, errEnds) {
					t.Fatal(err)
				}
			}
			if n.pid(team) != 0 || len(n.stuck) != 0 {
				t.Errorf("PID %d; not ended %v", n.pid(team), n.stuck)
			}
		})
	}
}

// TestFoundAgain: the next agent finds the store of the last one, and ends it when nobody wants it.
func TestFoundAgain(t *testing.T) {
	n := newNode(t)
	n.open(team)
	pid := n.pid(team)
	n.restart(n.Dir)
	if err := n.Retain(func(string) bool { return true }); err != nil || !n.Owns(pid) {
		t.Errorf("%v; owned %v", err, n.Owns(pid))
	}
	n.open(team)
	if n.pid(team) != pid {
		t.Error("it was replaced")
	}
	n.restart(n.Dir)
	if err := n.Stop(); err != nil || n.pid(team) != 0 || n.Owns(pid) {
		t.Errorf("%v; PID %d", err, n.pid(team))
	}
}

// TestReplaced: a store that was killed, and one that is stopped, are replaced at the same path.
func TestReplaced(t *testing.T) {
	for name, end := range map[string]func(*node, Store){"killed": (*node).kill, "hung": (*node).hang} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			n.open(team)
			pid := n.pid(team)
			end(n, team)
			n.open(team)
			if now := n.pid(team); now == 0 || now == pid || !n.serves(team) {
				t.Errorf("PID %d after %d", now, pid)
			}
			if n.asked != 1 {
				t.Errorf("asked %d times for survivors, want it once, for the store that has ended", n.asked)
			}
		})
	}
}

// TestTrimOfHungStore kills a store that does not answer: its memory may be needed.
func TestTrimOfHungStore(t *testing.T) {
	n := newNode(t)
	n.open(team)
	if err := n.Trim(t.Context(), "GPU-1", []string{"team", "none"}); err != nil || n.pid(team) == 0 {
		t.Fatal(err)
	}
	n.hang(team)
	if err := n.Trim(t.Context(), "GPU-1", []string{"team"}); err != nil || n.pid(team) != 0 {
		t.Errorf("%v; PID %d", err, n.pid(team))
	}
}

// TestFails: the reason for which a store ends is told, and nothing is left running.
func TestFails(t *testing.T) {
	t.Setenv(fakestore.Behaviour, fakestore.Fails)
	n := newNode(t)
	err := n.Open(t.Context(), team, "GPU-1", nil)
	if err == nil || !strings.Contains(err.Error(), fakestore.ErrDriver.Error()) || n.pid(team) != 0 {
		t.Errorf("%v; PID %d", err, n.pid(team))
	}
}

// TestHangs: a store that does not begin to serve is killed.
func TestHangs(t *testing.T) {
	t.Setenv(fakestore.Behaviour, fakestore.Hangs)
	n := newNode(t)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if err := n.Open(ctx, team, "GPU-1", nil); err == nil {
		t.Error("it serves")
	}
	for end := time.Now().Add(20 * time.Second); n.pid(team) != 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it runs on")
		}
	}
}

// openAndDie is an agent that opens a store in a directory, ends it, and is killed at a step.
func openAndDie(dir, step string) (code int) {
	killPoint = func(at string) {
		if at == step {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {} // the signal is on its way
		}
	}
	m := New(Config{Dir: dir, Grants: dir, Program: os.Args[0], AnswerTimeout: time.Minute, Log: slog.New(slog.DiscardHandler)})
	none := func(Store) (store.Survivors, error) { return store.Survivors{}, nil }
	open := func() (err error) { // again and again, as an agent does: a busy machine may take longer to start or end a store than a manager waits
		for end := time.Now().Add(time.Minute); time.Now().Before(end); {
			if err = m.Open(context.Background(), team, "GPU-1", none); err == nil {
				return nil
			}
		}
		return err
	}
	for range 2 { // the second time in the place of one that was killed
		if open() != nil {
			return 3
		}
		p, _ := m.control(team.ID()).Holder()
		_ = kill(p)
	}
	if open() != nil || m.Stop() != nil {
		return 4
	}
	return 0
}

// processesOf returns how many stores run in a directory, whoever started them.
func processesOf(t *testing.T, dir string) (count int) {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		line, err := process.ReadFile(pid, "cmdline")
		if err == nil && strings.Contains(string(line), "\x00store\x00") && strings.Contains(string(line), dir) {
			count++
		}
	}
	return count
}

// TestAgentKilled kills the agent at each step. The next one has exactly one store, and leaves none.
func TestAgentKilled(t *testing.T) {
	for _, step := range []string{"store directory", "store started", "store detached", "store serves", "store survivors", "store ended", "never"} {
		t.Run(step, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			err := exec.Command(os.Args[0], "open", n.Dir, step).Run()
			exit, killed := errors.AsType[*exec.ExitError](err)
			if killed && exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL || killed == (step == "never") {
				t.Fatal(err)
			}
			n.open(team)
			if !n.serves(team) {
				t.Error("no store serves")
			}
			for end := time.Now().Add(20 * time.Second); processesOf(t, n.Dir) != 1; time.Sleep(time.Millisecond) {
				if time.Now().After(end) {
					t.Fatalf("%d stores run", processesOf(t, n.Dir))
				}
			}
			if err := n.Stop(); err != nil || processesOf(t, n.Dir) != 0 {
				t.Errorf("%v; %d are left", err, processesOf(t, n.Dir))
			}
		})
	}
}
