package cgroup_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gshare-dev/gshare/node/cgroup"
)

// TestApart moves a real process, in all the hierarchies of this machine.
func TestApart(t *testing.T) {
	name := fmt.Sprintf("gshare-test-%d", os.Getpid())
	a := cgroup.Detached{Mount: "/sys/fs/cgroup", Name: name}
	cat := exec.Command("cat")
	held, err := cat.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cat.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_, _ = held.Close(), cat.Wait()
		if err := a.Remove(); err != nil {
			t.Error(err)
		}
		if left, _ := filepath.Glob("/sys/fs/cgroup/*/" + name); len(left) > 0 {
			t.Errorf("left: %v", left)
		}
	})
	if err := a.Enter(cat.Process.Pid); err != nil {
		t.Skip("no process can be moved: ", err)
	}
	m, err := cgroup.Of(cat.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range m {
		if mounted(line) && line.Path != "/"+name {
			t.Errorf("%q: in %s", line.Controllers, line.Path)
		}
	}
	if err := a.Enter(cat.Process.Pid); err != nil {
		t.Error("again: ", err)
	}
	if err := a.Remove(); err == nil {
		t.Error("removed from under a process")
	}
}

// mounted says whether a hierarchy can be seen where the machine keeps them.
func mounted(line cgroup.Line) bool {
	for _, dir := range []string{"", "unified", strings.TrimPrefix(line.Controllers, "name=")} {
		_, err := os.Stat(filepath.Join("/sys/fs/cgroup", dir, "cgroup.procs"))
		if err == nil && (line.Controllers == "") == (dir == "" || dir == "unified") {
			return true
		}
	}
	return false
}

func TestApartNowhere(t *testing.T) {
	if err := (cgroup.Detached{}).Enter(os.Getpid()); err != nil {
		t.Error("none: ", err)
	}
	if err := (cgroup.Detached{Mount: t.TempDir(), Name: "x"}).Enter(os.Getpid()); err == nil {
		t.Error("entered what is not there")
	}
}
