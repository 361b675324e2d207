package mps

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/gshare-dev/gshare/vgpu/node/gpu"
)

// TestLifetime: a daemon comes when it is asked for, is one however often, and ends when nobody holds the slice.
func TestLifetime(t *testing.T) {
	versions(t, func(t *testing.T, r *rig) {
		if err := r.open(); !errors.Is(err, ErrClosed) {
			t.Errorf("open before there is a daemon: %v", err)
		}
		r.opened()
		r.Hold(members)
		pid := r.daemon()
		second := r.keeper(r.Dir)
		second.Hold(members)
		r.eventually("open for the next keeper", func() bool { return opens(second) })
		if r.daemon() != pid {
			t.Error("the next keeper has started another daemon")
		}
		second.Close()
		c := r.joined()
		r.Hold(nil)
		r.eventually("closed", func() bool { return r.Slices()[slice] != "" })
		if r.daemon() != pid || !c.alive() {
			t.Error("a daemon with a client was ended")
		}
		r.signal(c.Process.Pid, syscall.SIGKILL)
		r.eventually("no daemon", func() bool {
			daemons, _ := r.control(slice).processes()
			return len(daemons) == 0
		})
		if r.changes.Load() == 0 {
			t.Error("nobody was told")
		}
	})
}

// TestDaemonDiesUnderLoad: clients go on with their server; nobody new comes, and no second daemon beside that server, until
// they have ended; then the slice opens by itself and serves again.
func TestDaemonDiesUnderLoad(t *testing.T) {
	versions(t, func(t *testing.T, r *rig) {
		r.shared()
		for range 3 {
			r.opened()
			a, b := r.joined(), r.joined()
			pid, server := r.daemon(), r.servers()[0]
			r.eventually("looked at", func() bool { return r.clientsSeen() == 2 })
			r.signal(pid, syscall.SIGKILL)
			r.eventually("closed", func() bool { return r.open() != nil })
			bare := r.client(r.environment()...) // by the pipes that are left: it runs without MPS
			r.eventually("closed for the clients' sake", func() bool { return r.Slices()[slice] == "clients of a daemon that has ended still run" })
			if !a.alive() || !b.alive() || len(r.servers()) != 1 {
				t.Fatal("clients ended with the daemon")
			}
			for _, c := range []*client{a, b, bare} {
				r.signal(c.Process.Pid, syscall.SIGKILL)
			}
			r.opened()
			if r.daemon() == pid || slices.Contains(r.servers(), server) {
				t.Fatal("what was left of the old daemon stands beside the new one")
			}
			c := r.joined()
			r.signal(c.Process.Pid, syscall.SIGKILL)
			<-c.ended
		}
	})
}

// clientsSeen is how many clients the keeper knows of.
func (r *rig) clientsSeen() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.kept[slice].served
}

// TestServerDies: its clients fail, the daemon starts another one for the next.
func TestServerDies(t *testing.T) {
	versions(t, func(t *testing.T, r *rig) {
		r.shared()
		c, daemon := r.joined(), r.daemon()
		server := r.servers()[0]
		r.signal(server, syscall.SIGKILL)
		if err := <-c.ended; err == nil {
			t.Error("a client went on without its server")
		}
		if r.driver != "" { // else it comes with the next client
			r.eventually("another server", func() bool { s := r.servers(); return len(s) == 1 && s[0] != server })
		}
		r.opened()
		r.joined()
		if r.daemon() != daemon {
			t.Error("the daemon was not left alone")
		}
	})
}

// TestHang: a daemon that does not answer is replaced.
func TestHang(t *testing.T) {
	versions(t, func(t *testing.T, r *rig) {
		r.shared()
		pid := r.daemon()
		r.signal(pid, syscall.SIGSTOP)
		r.replaced(pid)
	})
}

// replaced waits for another daemon that serves.
func (r *rig) replaced(before int) {
	r.t.Helper()
	r.eventually("another daemon", func() bool {
		daemons, _ := r.control(slice).processes()
		return len(daemons) == 1 && daemons[0] != before && r.open() == nil
	})
	r.joined()
}

// TestFault: nobody new comes until the clients that have failed are gone. One that ignores its errors is ended by the daemon,
// never by a signal.
func TestFault(t *testing.T) {
	versions(t, func(t *testing.T, r *rig) {
		r.shared()
		failing, stubborn := r.joined(), r.joined()
		r.signal(stubborn.Process.Pid, syscall.SIGSTOP) // it does not even notice
		r.signal(r.servers()[0], syscall.SIGUSR1)
		if err := <-failing.ended; err == nil {
			t.Error("a client went on after a fault")
		}
		r.eventually("closed", func() bool { return r.Slices()[slice] == "a fault has failed its clients" })
		r.opened()
		if !stubborn.alive() {
			t.Error("a client was ended by a signal")
		}
		r.joined()
	})
}

// TestBare: a process that the driver shows and the daemon does not know closes the slice until it has ended. A client does not.
func TestBare(t *testing.T) {
	versions(t, func(t *testing.T, r *rig) {
		r.shared()
		client, bare := r.joined(), r.client()
		server := r.servers()[0]
		r.Saw([]gpu.Process{
			{PID: client.Process.Pid, Slice: slice}, {PID: bare.Process.Pid, Slice: slice}, {PID: server, Slice: slice}, {PID: os.Getpid(), Slice: "GPU-8"},
		})
		r.eventually("found out", func() bool { return slices.Equal(r.Bare(slice), []int{bare.Process.Pid}) })
		if r.open() == nil {
			t.Error("open beside a process without limits")
		}
		r.signal(bare.Process.Pid, syscall.SIGKILL)
		r.opened()
		if len(r.Bare(slice)) != 0 {
			t.Error("a process that has ended is bare")
		}
	})
}

// TestEndClients ends the work of those that are meant, not their processes, and nobody else's work.
func TestEndClients(t *testing.T) {
	versions(t, func(t *testing.T, r *rig) {
		r.shared()
		going, staying := r.joined(), r.joined()
		if err := r.EndClients(t.Context(), slice, func(pid int) bool { return pid == going.Process.Pid }); err != nil {
			t.Fatal(err)
		}
		var exit interface{ ExitCode() int }
		if err := <-going.ended; !errors.As(err, &exit) || exit.ExitCode() != 1 {
			t.Errorf("it ended with %v, not by its own error", err)
		}
		if !r.knows(staying.Process.Pid) || !staying.alive() {
			t.Error("another client ended too")
		}
		if err := r.EndClients(t.Context(), "GPU-8", func(int) bool { return true }); err == nil {
			t.Error("there is no daemon on that slice")
		}
	})
}

// TestUsers: pods of several users share a server.
func TestUsers(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can play another user")
	}
	versions(t, func(t *testing.T, r *rig) {
		if err := os.Chmod(r.folder, 0o755); err != nil {
			t.Fatal(err)
		}
		r.shared()
		r.joined()
		other := r.as(4711, r.environment()...)
		r.eventually("the client of another user", func() bool { return r.knows(other.Process.Pid) })
	})
}

func (r *rig) as(uid uint32, environment ...string) *client {
	r.t.Helper()
	return r.start(&syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Credential: &syscall.Credential{Uid: uid, Gid: uid}}, environment...)
}

// TestBrokenProgram: a program that does not work keeps the slice closed, and is tried again and again.
func TestBrokenProgram(t *testing.T) {
	versions(t, func(t *testing.T, r *rig) {
		k := r.keeper(r.Dir)
		k.Program = filepath.Join(r.folder, "nothing")
		r.Keeper = k
		k.Hold(members)
		if err := os.Symlink("/bin/false", k.Program); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.Remove(filepath.Join(r.folder, "nothing")) })
		r.eventually("tried", func() bool {
			return strings.HasPrefix(k.Slices()[slice], "the daemon does not start: MPS of slice "+slice)
		})
		if opens(k) {
			t.Error("open without a daemon")
		}
	})
}
