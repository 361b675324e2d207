package mps

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/gshare-dev/gshare/vgpu/node/cgroup"
)

// TestApart: daemon and server are not in the cgroup of their agent, with which a container runtime would end them; nothing is
// left of theirs in the end.
func TestApart(t *testing.T) {
	r := newRig(t, "")
	home := cgroup.Apart{Mount: "/sys/fs/cgroup", Name: fmt.Sprintf("gshare-mps-test-%d", os.Getpid())}
	r.Close()
	r.Keeper = r.keeperOf(Daemons{Dir: r.Dir, Apart: home})
	r.Hold(members)
	r.opened()
	c := r.client(r.environment()...)
	r.eventually("a server", func() bool { return len(r.servers()) == 1 })
	for _, pid := range append(r.servers(), r.daemon()) {
		m, err := cgroup.Of(pid)
		if err == nil && strings.Contains(fmt.Sprint(m), "/"+home.Name) {
			continue
		}
		if err := home.Enter(pid); err != nil {
			t.Skip("no process can be moved: ", err)
		}
		t.Errorf("process %d is in %v (%v)", pid, m, err)
	}
	_ = c.Process.Kill()
	r.Close()
	r.eventually("no cgroup", func() bool { return r.Stop(t.Context()) == nil })
}
