package mps

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// forge starts a program that has a daemon's name, arguments and environment, and waits.
func (r *rig) forge(as *syscall.SysProcAttr) *exec.Cmd {
	r.t.Helper()
	shell, err := os.ReadFile("/bin/sh")
	if err != nil {
		r.t.Fatal(err)
	}
	dir := r.t.TempDir()
	file := filepath.Join(dir, program)
	if err := os.WriteFile(file, shell, 0o755); err != nil {
		r.t.Fatal(err)
	}
	for ; len(dir) > len(os.TempDir()); dir = filepath.Dir(dir) { // for other users
		if err := os.Chmod(dir, 0o755); err != nil {
			r.t.Fatal(err)
		}
	}
	c := exec.Command(file, "-c", "read line", "-d", "-p", "3")
	c.Env, c.SysProcAttr = []string{pipeVariable + r.Pipe(slice)}, as
	input, err := c.StdinPipe()
	if err != nil {
		r.t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _, _ = input.Close(), c.Wait() })
	return c
}

// inPod puts a process into a cgroup as runtimes name those of containers, in any hierarchy that there is.
func inPod(t *testing.T, c *exec.Cmd) {
	t.Helper()
	pid := strconv.Itoa(c.Process.Pid)
	root := "/sys/fs/cgroup"
	if _, err := os.Stat(filepath.Join(root, "cgroup.procs")); err != nil {
		root = "/sys/fs/cgroup/pids" // version 1
	}
	top := filepath.Join(root, "gshare-mps-test-"+pid)
	pod := filepath.Join(top, "pod01234567-89ab-cdef-0123-456789abcdef")
	dir := filepath.Join(pod, strings.Repeat("a", 64))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Skip("no cgroup can be made: ", err)
	}
	t.Cleanup(func() {
		_, _ = c.Process.Kill(), c.Wait()
		for _, d := range []string{dir, pod, top} {
			_ = os.Remove(d)
		}
	})
	if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(pid), 0o644); err != nil {
		t.Skip("no process can be moved: ", err)
	}
}

// TestForged: who makes a program look like a daemon of version 3 does not become one: not from a pod, nor as another user. The daemon
// that is there, of version 2, and its client go on under the next keeper.
func TestForged(t *testing.T) {
	for _, from := range []string{"pod", "user"} {
		t.Run(from, func(t *testing.T) {
			r := newRig(t, "")
			if from == "user" && os.Geteuid() != 0 {
				t.Skip("only root can play another user")
			}
			r.shared()
			client, first := r.joined(), r.daemon()
			r.Close()
			var as *syscall.SysProcAttr
			if from == "user" {
				as = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 4711, Gid: 4711}}
			}
			forged := r.forge(as)
			if found, _ := r.control(slice).processes(); from == "pod" && !slices.Contains(found, forged.Process.Pid) {
				t.Fatalf("%v: the forgery is none", found)
			}
			if from == "pod" {
				inPod(t, forged)
			}
			r.Keeper = r.keeper(r.Dir)
			r.Hold(members)
			r.opened()
			if r.daemon() != first || !client.alive() {
				t.Error("the daemon or its client has ended")
			}
		})
	}
}
