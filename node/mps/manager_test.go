package mps

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gshare-dev/gshare/node/gpu"
	"github.com/gshare-dev/gshare/test/executable"
)

// TestLifetime: the first call of Open starts a daemon, later managers use the same one, and it ends when its slice has no members.
func TestLifetime(t *testing.T) {
	forVersions(t, func(t *testing.T, r *rig) {
		if _, err := r.Open(member); !errors.Is(err, ErrClosed) {
			t.Errorf("open before there is a daemon: %v", err)
		}
		r.waitUntilOpen()
		r.SetMembers(members)
		pid := r.daemon()
		second := r.newManager(Daemons{Dir: r.Dir})
		second.SetMembers(members)
		r.waitFor("the slice to open for the next manager", func() bool { return isOpen(second) })
		if r.daemon() != pid {
			t.Error("the next manager has started another daemon")
		}
		second.Close()
		c := r.connect()
		r.SetMembers(nil)
		r.waitFor("the slice to close", func() bool { return r.ClosedReasons()[slice] != "" })
		if r.daemon() != pid || !c.alive() {
			t.Error("a daemon with a client was ended")
		}
		r.signal(c.Process.Pid, syscall.SIGKILL)
		r.waitForNoDaemon()
		if r.changes.Load() == 0 {
			t.Error("OnChange was not called")
		}
	})
}

// TestDaemonDiesUnderLoad: clients of a killed daemon continue with their server. Until they have ended, the slice accepts no new ones
// and no second daemon is started beside that server; then it opens by itself and serves again.
func TestDaemonDiesUnderLoad(t *testing.T) {
	forVersions(t, func(t *testing.T, r *rig) {
		r.share()
		for range 3 {
			r.waitUntilOpen()
			a, b := r.connect(), r.connect()
			pid, server := r.daemon(), r.servers()[0]
			r.waitFor("an observation of both clients", func() bool { return r.clientCount() == 2 })
			r.signal(pid, syscall.SIGKILL)
			r.waitFor("the slice to close", func() bool { return !r.isOpen() })
			nonMPS := r.startClient(r.environment()...) // finds the old pipes, and runs without MPS
			r.waitFor("the slice to stay closed for the remaining clients", func() bool { return r.ClosedReasons()[slice] == "clients of a daemon that has ended still run" })
			if !a.alive() || !b.alive() || len(r.servers()) != 1 {
				t.Fatal("clients ended with the daemon")
			}
			for _, c := range []*client{a, b, nonMPS} {
				r.signal(c.Process.Pid, syscall.SIGKILL)
			}
			r.waitUntilOpen()
			if r.daemon() == pid || slices.Contains(r.servers(), server) {
				t.Fatal("a process of the old daemon runs beside the new one")
			}
			c := r.connect()
			r.signal(c.Process.Pid, syscall.SIGKILL)
			<-c.ended
		}
	})
}

// clientCount returns the number of clients as of the last observation.
func (r *rig) clientCount() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.daemons[slice].clientCount
}

// TestServerDies: the clients of a killed server fail, and the daemon starts another one for the next.
func TestServerDies(t *testing.T) {
	forVersions(t, func(t *testing.T, r *rig) {
		r.share()
		c, daemon := r.connect(), r.daemon()
		server := r.servers()[0]
		r.signal(server, syscall.SIGKILL)
		if err := <-c.ended; err == nil {
			t.Error("a client continued without its server")
		}
		if r.driver == driver615 { // v2 starts it with the next client
			r.waitFor("another server", func() bool { s := r.servers(); return len(s) == 1 && s[0] != server })
		}
		r.waitUntilOpen()
		r.connect()
		if r.daemon() != daemon {
			t.Error("the daemon was replaced")
		}
	})
}

// TestHang: a daemon that does not answer is replaced.
func TestHang(t *testing.T) {
	forVersions(t, func(t *testing.T, r *rig) {
		r.share()
		pid := r.hang(Daemons{CommandTimeout: 250 * time.Millisecond})
		r.waitForNext(pid)
		r.restart(Daemons{}, members...) // which has patience with the next one
		r.waitForReplacement(pid)
	})
}

// waitForReplacement waits for another daemon that accepts clients.
func (r *rig) waitForReplacement(before int) {
	r.t.Helper()
	r.waitForNext(before)
	r.connect()
}

// waitForNext waits for another daemon and the slice to be open.
func (r *rig) waitForNext(before int) {
	r.t.Helper()
	r.waitFor("the next daemon", func() bool {
		pids := r.daemonPIDs()
		return len(pids) == 1 && pids[0] != before && r.isOpen()
	})
}

// TestFault: after a fault, the slice accepts no clients until those that have failed are gone. The daemon terminates one that ignores
// its errors, which gets no signal.
func TestFault(t *testing.T) {
	forVersions(t, func(t *testing.T, r *rig) {
		r.share()
		failing, stubborn := r.connect(), r.connect()
		r.signal(stubborn.Process.Pid, syscall.SIGSTOP) // it cannot even see the error
		r.signal(r.servers()[0], syscall.SIGUSR1)
		r.waitFor("the slice to close", func() bool { // it opens again soon
			_, closed := r.reasons.Load("a fault has failed its clients")
			return closed
		})
		if err := <-failing.ended; err == nil {
			t.Error("a client continued after a fault")
		}
		r.waitUntilOpen()
		if !stubborn.alive() {
			t.Error("a client was ended by a signal")
		}
		r.connect()
	})
}

// TestNonMPSProcess: a process that the driver lists and the daemon does not closes the slice until it has ended. A client does not.
func TestNonMPSProcess(t *testing.T) {
	forVersions(t, func(t *testing.T, r *rig) {
		r.share()
		client, nonMPS := r.connect(), r.startClient()
		server := r.servers()[0]
		r.ObserveProcesses([]gpu.Process{
			{PID: client.Process.Pid, Slice: slice}, {PID: nonMPS.Process.Pid, Slice: slice}, {PID: server, Slice: slice}, {PID: os.Getpid(), Slice: "GPU-8"},
		})
		r.waitFor("the process to be reported", func() bool { return slices.Equal(r.NonMPSProcesses(slice), []int{nonMPS.Process.Pid}) })
		if r.isOpen() {
			t.Error("the slice is open beside a process without limits")
		}
		r.signal(nonMPS.Process.Pid, syscall.SIGKILL)
		r.waitUntilOpen()
		if len(r.NonMPSProcesses(slice)) != 0 {
			t.Error("a process that has ended is still reported")
		}
	})
}

// TestTerminateClients: the work of the matching clients ends, not their processes, and no other work.
func TestTerminateClients(t *testing.T) {
	forVersions(t, func(t *testing.T, r *rig) {
		r.share()
		terminated, other := r.connect(), r.connect()
		if err := r.TerminateClients(t.Context(), slice, func(pid int) bool { return pid == terminated.Process.Pid }); err != nil {
			t.Fatal(err)
		}
		var exit interface{ ExitCode() int }
		if err := <-terminated.ended; !errors.As(err, &exit) || exit.ExitCode() != 1 {
			t.Errorf("the client ended with %v, want exit code 1", err)
		}
		if !r.lists(other.Process.Pid) || !other.alive() {
			t.Error("another client ended")
		}
		if err := r.TerminateClients(t.Context(), "GPU-8", func(int) bool { return true }); err == nil {
			t.Error("no error for a slice without a daemon")
		}
	})
}

// TestUsers: pods of several users share a server.
func TestUsers(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can run a process as another user")
	}
	forVersions(t, func(t *testing.T, r *rig) {
		if err := os.Chmod(r.folder, 0o755); err != nil {
			t.Fatal(err)
		}
		r.share()
		r.connect()
		other := r.clientAs(4711, r.environment()...)
		r.waitFor("the client of another user", func() bool { return r.lists(other.Process.Pid) })
	})
}

// TestDriver535: with a driver before 555, whose MPS has no server for several users, an agent that is root starts the daemon all the same;
// clients of one user share it, and those of another wait for their end.
func TestDriver535(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can run a process as another user")
	}
	r := newRig(t, "r535")
	if err := os.Chmod(r.folder, 0o755); err != nil {
		t.Fatal(err)
	}
	r.share()
	first, second := r.connect(), r.connect()
	other := r.clientAs(4711, r.environment()...)
	time.Sleep(200 * time.Millisecond)
	if r.lists(other.Process.Pid) || !other.alive() {
		t.Fatal("the client of another user does not wait")
	}
	r.signal(first.Process.Pid, syscall.SIGKILL)
	r.signal(second.Process.Pid, syscall.SIGKILL)
	r.waitForClient(other)
	if !r.isOpen() {
		t.Errorf("the slice is closed: %v", r.ClosedReasons())
	}
}

// clientAs starts a client as another user.
func (r *rig) clientAs(uid uint32, environment ...string) *client {
	r.t.Helper()
	return r.startBy(executable.Start, &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}, environment...)
}

// TestBrokenProgram: a control program that fails keeps the slice closed, and is tried again.
func TestBrokenProgram(t *testing.T) {
	forVersions(t, func(t *testing.T, r *rig) {
		m := r.newManager(Daemons{Dir: r.Dir, CommandTimeout: 100 * time.Millisecond})
		m.Program = filepath.Join(t.TempDir(), "broken")
		r.Manager = m
		m.SetMembers(members)
		if err := os.Symlink("/bin/false", m.Program); err != nil {
			t.Fatal(err)
		}
		r.waitFor("a failed start", func() bool {
			return strings.HasPrefix(m.ClosedReasons()[slice], "failed to start the daemon: MPS daemon of slice "+slice)
		})
		if isOpen(m) {
			t.Error("the slice is open without a daemon")
		}
	})
}
