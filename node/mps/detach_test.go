package mps

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/gshare-dev/gshare/node/cgroup"
)

// TestDetach: daemon and server are not in the agent's cgroup, whose processes a container runtime kills together, and their own cgroup
// is removed in the end.
func TestDetach(t *testing.T) {
	r := newRig(t, "")
	detached := cgroup.Detached{Mount: "/sys/fs/cgroup", Name: fmt.Sprintf("gshare-mps-test-%d", os.Getpid())}
	r.restart(Daemons{DetachedCgroup: detached}, members...)
	r.waitUntilOpen()
	c := r.startClient(r.environment()...)
	r.waitFor("a server", func() bool { return len(r.servers()) == 1 })
	for _, pid := range append(r.servers(), r.daemon()) {
		m, err := cgroup.Of(pid)
		if err == nil && strings.Contains(fmt.Sprint(m), "/"+detached.Name) {
			continue
		}
		if err := detached.Enter(pid); err != nil {
			t.Skip("no permission to move processes: ", err)
		}
		t.Errorf("process %d is in cgroup %v (%v)", pid, m, err)
	}
	_ = c.Process.Kill()
	r.Close()
	r.waitFor("the cgroup to be removed", func() bool { return r.Stop(t.Context()) == nil })
}
