package mps

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	fakemps "github.com/gshare-dev/gshare/test/fake/mps"
	"github.com/gshare-dev/gshare/test/nvidia"
)

// branches are the driver branches whose MPS daemons are known command by command.
var branches = []string{"535", "550", "555"}

// forDrivers runs a test with the fake daemon of each branch and, where they are installed, with NVIDIA's. programs is a folder with a
// control program and, in place of the server, which needs a GPU, one that never begins to serve.
func forDrivers(t *testing.T, test func(t *testing.T, branch, programs string)) {
	t.Helper()
	for _, branch := range branches {
		t.Run("fake "+branch, func(t *testing.T) { test(t, branch, withIdleServer(t, fakeControl(t, branch))) })
		t.Run("NVIDIA "+branch, func(t *testing.T) {
			test(t, branch, withIdleServer(t, filepath.Join(nvidia.Folder(t, branch), "bin", controlProgram)))
		})
	}
}

// fakeControl returns the fake control program of a branch.
func fakeControl(t *testing.T, branch string) string {
	t.Helper()
	if branch == "555" { // the fake driver's own has all that 555 has
		return filepath.Join(fakeDriver(t), controlProgram)
	}
	return filepath.Join(fakeDriver(t), "r"+branch, controlProgram)
}

// withIdleServer returns a folder with a copy of a control program and a server that never begins to serve.
func withIdleServer(t *testing.T, control string) (programs string) {
	t.Helper()
	programs = t.TempDir()
	content, err := os.ReadFile(control)
	if err != nil {
		t.Fatal(err)
	}
	syscall.ForkLock.RLock() // a child that is forked while a program is written keeps it from being executed
	defer syscall.ForkLock.RUnlock()
	if err := errors.Join(
		os.Chmod(filepath.Dir(programs), 0o755), os.Chmod(programs, 0o755),
		os.WriteFile(filepath.Join(programs, controlProgram), content, 0o755),
		os.WriteFile(filepath.Join(programs, ServerProgram), []byte("#!/bin/sh\nexec sleep 60\n"), 0o755),
	); err != nil {
		t.Fatal(err)
	}
	return programs
}

// driverRig returns a rig with the daemon of a driver, and with the guard.
func driverRig(t *testing.T, programs string) *rig {
	t.Helper()
	r := newRig(t, "")
	r.programs = programs
	r.restart(Daemons{Guard: filepath.Join(r.folder, "libgshare-mps.so")})
	return r
}

// limitationsOf returns the limitations of a branch's daemon that the agent has started with the guard.
func limitationsOf(branch string) []string {
	want := []string{}
	if os.Geteuid() == 0 && branch < "555" {
		want = append(want, SingleUser)
	}
	if branch < "550" {
		want = append(want, FaultsUnknown)
	}
	return want
}

// knownLimitations waits until the limitations of the daemon are known and returns them.
func (r *rig) knownLimitations() (found []string) {
	r.t.Helper()
	r.waitFor("the limitations", func() bool { found = r.Limitations(slice); return found != nil })
	return found
}

// pipe returns the path of the pipe that clients of the slice use.
func (r *rig) pipe() string { return filepath.Join(r.ClientDir(slice), pipeName) }

// TestDrivers: the daemon of each driver starts, is replaced after its end and when it hangs, accepts clients each time, and leaves nothing.
func TestDrivers(t *testing.T) {
	forDrivers(t, func(t *testing.T, branch, programs string) {
		r := driverRig(t, programs)
		r.share()
		if got := r.knownLimitations(); !slices.Equal(got, limitationsOf(branch)) {
			t.Errorf("got limitations %q, want %q", got, limitationsOf(branch))
		}
		for _, signal := range []syscall.Signal{syscall.SIGKILL, syscall.SIGSTOP} {
			first := r.daemon() // before the client, for which it forks a server
			client, err := fakemps.Open(r.pipe(), fakemps.Client)
			if err != nil {
				t.Fatal(err)
			}
			client.Close()

			if signal == syscall.SIGSTOP {
				first = r.hang(Daemons{Guard: r.Guard, CommandTimeout: time.Second})
			} else {
				r.signal(first, signal)
			}
			r.waitForNext(first)
		}
		r.Close()
		if err := r.Stop(t.Context()); err != nil {
			t.Error(err)
		}
		if left := len(r.daemonPIDs()) + len(r.servers()); left != 0 {
			t.Errorf("%d processes are left", left)
		}
		for _, dir := range []string{r.PipeDir(slice), r.ClientDir(slice)} {
			if left, err := os.ReadDir(dir); len(left) != 0 {
				t.Errorf("%v is left in %s (%v)", left, dir, err)
			}
		}
	})
}

// TestDriverUpgrade: the daemon of a driver that is replaced goes on while it has members. The next one is that of the next driver.
func TestDriverUpgrade(t *testing.T) {
	forDrivers(t, func(t *testing.T, branch, programs string) {
		r := driverRig(t, programs)
		r.share()
		first := r.daemon()
		r.programs = withIdleServer(t, fakeControl(t, "555"))
		r.restart(Daemons{Guard: r.Guard}, members...)
		r.waitUntilOpen()
		if got := r.knownLimitations(); r.daemon() != first || !slices.Equal(got, limitationsOf(branch)) {
			t.Errorf("daemon %d after %d has limitations %q", r.daemon(), first, got)
		}
		r.SetMembers(members) // it is not pending any more
		r.SetMembers(nil)
		r.waitForNoDaemon()
		r.share()
		if got := r.knownLimitations(); len(got) != 0 {
			t.Errorf("the daemon of the next driver has limitations %q", got)
		}
	})
}

// TestGuard: a client in a container cannot command the daemon, whoever it is, and one that connects and says nothing does not stop it.
// Without the guard, both succeed, and the first is reported.
func TestGuard(t *testing.T) {
	forDrivers(t, func(t *testing.T, branch, programs string) {
		for name, guarded := range map[string]bool{"with the guard": true, "without": false} {
			t.Run(name, func(t *testing.T) {
				r := driverRig(t, programs)
				if !guarded {
					r.restart(Daemons{})
				}
				r.share()
				if reported := slices.Contains(r.knownLimitations(), Commandable); reported == guarded {
					t.Errorf("got limitations %q", r.Limitations(slice))
				}
				r.Close() // no other commands than those of this test
				c := r.control(slice)
				said, err := c.retryUnlessRefused(t.Context(), "set_default_active_thread_percentage 7")
				answer, _ := c.commandV2(t.Context(), "get_default_active_thread_percentage")
				want := "100.0\n"
				if !guarded && branch == "535" { // later ones take settings by the daemon's other pipe only
					want = "7.0\n"
				}
				if answer != want || (err != nil) != guarded {
					t.Errorf("default is %q after a client's command (%q, %v), want %q", answer, said, err, want)
				}
				silent, err := fakemps.Connect(r.pipe())
				if err != nil {
					t.Fatal(err)
				}
				defer silent.Close()
				if !guarded {
					c.CommandTimeout = time.Second // it gets no answer
				}
				if _, err := c.commandV2(t.Context(), "get_server_list"); errors.Is(err, errTimeout) == guarded {
					t.Errorf("beside a silent client: %v", err)
				}
			})
		}
	})
}

// retryUnlessRefused sends a command by the pipe for clients, several times, since a daemon may be busy.
func (c control) retryUnlessRefused(ctx context.Context, text string) (answer string, err error) {
	for range 10 {
		if answer, err = c.tryCommandV2(ctx, c.ClientDir(c.slice), text); err == nil {
			return answer, nil
		}
		time.Sleep(busyDelay)
	}
	return answer, err
}

// TestPipeOfClients: a pipe of clients that has been removed or replaced leads to the daemon again, which is not replaced.
func TestPipeOfClients(t *testing.T) {
	r := newRig(t, "")
	r.share()
	first := r.daemon()
	same := func() bool {
		own, err := os.Lstat(filepath.Join(r.PipeDir(slice), pipeName))
		public, publicErr := os.Lstat(r.pipe())
		return err == nil && publicErr == nil && os.SameFile(own, public)
	}
	for what, change := range map[string]func() error{
		"removed":  func() error { return os.Remove(r.pipe()) },
		"replaced": func() error { return errors.Join(os.Remove(r.pipe()), os.WriteFile(r.pipe(), nil, 0o644)) },
	} {
		if err := change(); err != nil {
			t.Fatal(err)
		}
		r.waitFor("the pipe that was "+what, same)
	}
	r.connect()
	if r.daemon() != first {
		t.Error("the daemon was replaced")
	}
}

// TestConcurrentCommands: commands that are sent at the same time all succeed, though a daemon serves one session at a time.
func TestConcurrentCommands(t *testing.T) {
	forDrivers(t, func(t *testing.T, branch, programs string) {
		r := driverRig(t, programs)
		r.restart(Daemons{})
		r.share()
		results := make(chan error, 8)
		for range cap(results) {
			go func() {
				answer, err := r.control(slice).commandV2(t.Context(), "get_default_client_priority")
				if answer != "0\n" {
					err = errors.Join(err, fmt.Errorf("got answer %q", answer))
				}
				results <- err
			}()
		}
		for range cap(results) {
			if err := <-results; err != nil {
				t.Error(err)
			}
		}
	})
}

// TestQuitAfterFailure: the exit code with which a daemon ends after a failed server is no error of quit.
func TestQuitAfterFailure(t *testing.T) {
	forDrivers(t, func(t *testing.T, branch, programs string) {
		r := driverRig(t, programs)
		syscall.ForkLock.RLock() // a fork would hold the file open for writing, and it could not be executed
		err := os.WriteFile(filepath.Join(programs, ServerProgram), []byte("#!/bin/sh\nexit 1\n"), 0o755)
		syscall.ForkLock.RUnlock()
		if err != nil {
			t.Fatal(err)
		}
		r.share()
		r.Close()
		c := r.control(slice)
		if _, err := c.commandV2(t.Context(), startServer()); err != nil {
			t.Fatal(err)
		}
		r.waitFor("the server to fail", func() bool { return r.listServerPIDs() == "" })
		if err := c.quit(t.Context()); err != nil || len(r.daemonPIDs()) != 0 {
			t.Errorf("quit: %v; daemons %v", err, r.daemonPIDs())
		}
	})
}
