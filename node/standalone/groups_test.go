package standalone

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/gshare-dev/gshare/node/process"
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
	if grant.Inherit || grant.Enforcement.Identity != "cgroup" {
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
	path := filepath.Join(groups.root, r.Cgroup)
	p.end()
	eventually(t, "the cgroup is gone", func() bool {
		_, err := os.Stat(path)
		return os.IsNotExist(err)
	})
}

// TestConfines: a user who may write the list of processes of any cgroup above a run's takes it out of there; root does anyhow.
func TestConfines(t *testing.T) {
	own := uint32(os.Getuid())
	for name, test := range map[string]struct {
		modes [3]os.FileMode // of the lists of /, /user and /user/app; 0: there is none
		uid   uint32
		want  bool
	}{
		"another's":         {[3]os.FileMode{0o644, 0o644, 0o644}, own + 1, true},
		"one's own":         {[3]os.FileMode{0o644, 0o644, 0o644}, own, false},
		"read-only by name": {[3]os.FileMode{0o444, 0o444, 0o444}, own, false},
		"root":              {[3]os.FileMode{0o644, 0o644, 0o644}, 0, false},
		"everybody's":       {[3]os.FileMode{0o644, 0o644, 0o666}, own + 1, false},
		"a group's above":   {[3]os.FileMode{0o644, 0o664, 0o644}, own + 1, false},
		"not to be seen":    {[3]os.FileMode{0o644, 0o644, 0}, own + 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			g := &Groups{tempDir(t)}
			for i, dir := range []string{"", "user", "user/app"} {
				procs := filepath.Join(g.root, dir, "cgroup.procs")
				if err := os.MkdirAll(filepath.Dir(procs), 0o755); err != nil {
					t.Fatal(err)
				}
				if test.modes[i] == 0 {
					continue
				}
				if err := errors.Join(os.WriteFile(procs, nil, 0o600), os.Chmod(procs, test.modes[i])); err != nil {
					t.Fatal(err)
				}
			}
			if got := g.confines("/user/app/gshare-x", test.uid); got != test.want {
				t.Errorf("%v", got)
			}
		})
	}
}
