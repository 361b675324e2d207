package modelstore

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gshare-dev/gshare/vgpu/node/process"
	"github.com/gshare-dev/gshare/vgpu/node/store"
	"github.com/gshare-dev/gshare/vgpu/node/store/client"
	"github.com/gshare-dev/gshare/vgpu/node/store/cuda"
	"github.com/gshare-dev/gshare/vgpu/node/unixsocket"
	"github.com/gshare-dev/gshare/vgpu/share"
	rules "github.com/gshare-dev/gshare/vgpu/store"
)

// The test binary is also the program of the stores, by its first argument. This variable tells how they misbehave.
const behaviour = "GSHARE_TEST_STORE"

func TestMain(m *testing.M) {
	if len(os.Args) < 2 || os.Args[1] != "store" {
		os.Exit(m.Run())
	}
	if err := runStore(os.Args[2:]); err != nil {
		_, _ = os.Stderr.WriteString(err.Error() + "\n")
		os.Exit(1)
	}
}

// argument returns the value of a flag.
func argument(arguments []string, name string) string {
	return arguments[slices.Index(arguments, name)+1]
}

// runStore is gshare-node store, with memory of the host and programs of any pod.
func runStore(arguments []string) error {
	control := store.Control(argument(arguments, "--control"))
	if os.Getenv(behaviour) == "fails" {
		return errors.New("no driver")
	}
	if err := control.Hold(); err != nil {
		return err
	}
	if os.Getenv(behaviour) == "hangs" {
		select {}
	}
	server := store.New(store.Options{
		Namespace: argument(arguments, "--namespace"), Log: slog.New(slog.DiscardHandler), Memory: hostMemory{},
		Identify: func(process.Process) (string, error) { return argument(arguments, "--namespace"), nil },
		Declared: func() (map[rules.Digest]share.Bytes, error) {
			return map[rules.Digest]share.Bytes{{}: share.MiB}, nil
		},
	})
	listener, err := unixsocket.Listen("unixpacket", argument(arguments, "--socket"), 0o666, unixsocket.NewLimiter())
	if err != nil {
		return err
	}
	socket, err := control.Listen()
	if err != nil {
		return err
	}
	go func() { _ = server.ServeControl(socket) }()
	return server.Serve(context.Background(), listener)
}

// hostMemory is never asked for any.
type hostMemory struct{}

func (hostMemory) Create(share.Bytes) (cuda.Handle, error) { return 0, errors.ErrUnsupported }
func (hostMemory) Export(cuda.Handle) (*os.File, error)    { return nil, errors.ErrUnsupported }
func (hostMemory) Release(cuda.Handle) error               { return errors.ErrUnsupported }

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
	n.Manager = New(Config{Dir: dir, Grants: filepath.Join(dir, "none"), Program: os.Args[0], Log: slog.New(slog.DiscardHandler)})
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

// hang stops a store, as if it hung.
func (n *node) hang(s Store) {
	n.t.Helper()
	pid := n.pid(s)
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		n.t.Fatal(err)
	}
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
	if err := syscall.Kill(n.pid(s), syscall.SIGKILL); err != nil {
		n.t.Fatal(err)
	}
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
	t.Setenv(behaviour, "fails")
	n := newNode(t)
	err := n.Open(t.Context(), team, "GPU-1", nil)
	if err == nil || !strings.Contains(err.Error(), "no driver") || n.pid(team) != 0 {
		t.Errorf("%v; PID %d", err, n.pid(team))
	}
}

// TestHangs: a store that does not begin to serve is killed.
func TestHangs(t *testing.T) {
	t.Setenv(behaviour, "hangs")
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
