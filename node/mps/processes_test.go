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

// startForged starts a program that has the name, arguments and environment of a daemon, and waits for input.
func (r *rig) startForged(as *syscall.SysProcAttr) *exec.Cmd {
	r.t.Helper()
	shell, err := os.ReadFile("/bin/sh")
	if err != nil {
		r.t.Fatal(err)
	}
	dir := r.t.TempDir()
	file := filepath.Join(dir, controlProgram)
	syscall.ForkLock.RLock() // a process that another test forks meanwhile would hold the file open for writing, and exec would fail
	err = os.WriteFile(file, shell, 0o755)
	syscall.ForkLock.RUnlock()
	if err != nil {
		r.t.Fatal(err)
	}
	for ; len(dir) > len(os.TempDir()); dir = filepath.Dir(dir) { // readable for other users
		if err := os.Chmod(dir, 0o755); err != nil {
			r.t.Fatal(err)
		}
	}
	c := exec.Command(file, "-c", "read line", "-d", "-p", "3")
	c.Env, c.SysProcAttr = []string{pipeVariable + r.PipeDir(slice)}, as
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

// moveToPod moves a process into a cgroup with the name of a container's, in whichever hierarchy exists.
func moveToPod(t *testing.T, c *exec.Cmd) {
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
		t.Skip("no permission to create cgroups: ", err)
	}
	t.Cleanup(func() {
		_, _ = c.Process.Kill(), c.Wait()
		for _, d := range []string{dir, pod, top} {
			_ = os.Remove(d)
		}
	})
	if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(pid), 0o644); err != nil {
		t.Skip("no permission to move processes: ", err)
	}
}

// TestForgedDaemon: a process that looks like a daemon of MPS v3, in a pod or of another user, is not taken for one. The real daemon, of
// v2, and its client continue under the next manager.
func TestForgedDaemon(t *testing.T) {
	for _, from := range []string{"pod", "user"} {
		t.Run(from, func(t *testing.T) {
			r := newRig(t, "")
			if from == "user" && os.Geteuid() != 0 {
				t.Skip("only root can run a process as another user")
			}
			r.share()
			client, first := r.connect(), r.daemon()
			r.Close()
			var as *syscall.SysProcAttr
			if from == "user" {
				as = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 4711, Gid: 4711}}
			}
			forged := r.startForged(as)
			if found, _ := r.control(slice).findProcesses(); from == "pod" && !slices.Contains(found, forged.Process.Pid) {
				t.Fatalf("%v: the forged daemon was not found outside of a pod", found)
			}
			if from == "pod" {
				moveToPod(t, forged)
			}
			r.Manager = r.newManager(Daemons{Dir: r.Dir})
			r.SetMembers(members)
			r.waitUntilOpen()
			if r.daemon() != first || !client.alive() {
				t.Error("the daemon or its client was ended")
			}
		})
	}
}
