package main

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/gshare-dev/gshare/node/process"
)

// TestOrphans ends processes whose parent has died, also one whose PID has another process now, and no others.
func TestOrphans(t *testing.T) {
	own, err := parentID(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	dead := exec.Command("true")
	if err := dead.Start(); err != nil {
		t.Fatal(err)
	}
	gone, err := parentID(dead.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	_ = dead.Wait()
	namespace, _, _ := strings.Cut(own, " ")
	for name, c := range map[string]struct {
		parent string
		uid    int
		ends   bool
	}{
		"parent has died":          {gone, os.Getuid(), true},
		"PID of another process":   {own + "1", os.Getuid(), true},
		"parent lives":             {own, os.Getuid(), false},
		"no parent":                {"", os.Getuid(), false},
		"no PID":                   {namespace + " x", os.Getuid(), false},
		"of another PID namespace": {"pid:[1]" + strings.TrimPrefix(gone, namespace), os.Getuid(), false},
		"of another user":          {gone, 12345, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(parentVariable, "") // restored afterwards
			cmd := exec.Command("sleep", "1000")
			cmd.Env = append(os.Environ(), parentVariable+"="+c.parent)
			if c.uid != os.Getuid() {
				if os.Getuid() != 0 {
					t.Skip("only root can start a process of another user")
				}
				cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(c.uid), Gid: uint32(c.uid)}}
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			p, err := process.Open(cmd.Process.Pid)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { p.Close(); _ = cmd.Process.Kill(); _ = cmd.Wait() }()
			if _, err := claimChildren(); err != nil {
				t.Fatal(err)
			}
			if p.Alive() == c.ends {
				t.Errorf("ended: %v, want %v", c.ends, !c.ends)
			}
			if got := os.Getenv(parentVariable); got != own {
				t.Errorf("children are told %q, want %q", got, own)
			}
		})
	}
}

// TestOrphanOfServe: gshare serve is killed, the server behind a shell goes on and keeps its share, and the next gshare serve ends it.
func TestOrphanOfServe(t *testing.T) {
	m := newMachine(t)
	serve := func() (end func()) {
		cmd, out := m.command(t, "serve", functionFile(t, `[sh, -c, "sleep 1000; echo end"]`), "--hook", m.hook, "--address", "127.0.0.1:0")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		return func() {
			_ = cmd.Process.Kill()
			if _ = cmd.Wait(); t.Failed() {
				t.Log(out)
			}
		}
	}
	server := func() (pid int) { // the sleep of the run
		for _, r := range m.Status().Runs {
			_ = process.EachEnvironment(func(other int, variables []string) {
				if other != r.PID && slices.ContainsFunc(variables, func(v string) bool { return strings.HasSuffix(v, "/runs/"+r.ID) }) {
					pid = other
				}
			})
		}
		return pid
	}
	end := serve()
	waitFor(t, func() bool { return server() != 0 })
	p, err := process.Open(server())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Kill(); p.Close() })
	shell := m.Status().Runs[0].PID
	end()
	waitFor(t, func() bool { return !alive(shell) })
	if !p.Alive() {
		t.Fatal("the test shows nothing: the server has ended with gshare serve")
	}
	defer serve()()
	waitFor(t, func() bool { return !p.Alive() })
}
