package standalone

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/gshare-dev/gshare/vgpu/node/process"
)

// TestGroups puts a run into a cgroup and tries to get at its share from outside.
func TestGroups(t *testing.T) {
	groups, err := FindGroups()
	if err != nil {
		t.Skip("cgroups of version 2 are missing: ", err)
	}
	n := newNode(t, tempDir(t), func(o *Options) { o.Groups = groups })
	p := newProgram(t)
	grant := mustAdmit(t, n, p, ask(10, 10, 1))
	if grant.Inherit || grant.Truth.Identity != "cgroup" {
		t.Errorf("the grant says %+v", grant)
	}
	r := n.first()
	if err := r.admit(p.Process); err != nil {
		t.Errorf("its own process: %v", err)
	}
	forger := process.Process{PID: os.Getpid(), UID: p.UID}
	if err := r.admit(forger); err == nil {
		t.Error("a process of the same user but another cgroup was let in")
	}
	path := filepath.Join(groups.root, r.Group)
	p.end()
	eventually(t, "the cgroup is gone", func() bool {
		_, err := os.Stat(path)
		return os.IsNotExist(err)
	})
}
