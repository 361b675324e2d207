package standalone

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"github.com/gshare-dev/gshare/vgpu/node/cgroup"
	"github.com/gshare-dev/gshare/vgpu/node/process"
)

// Groups puts each run into a cgroup of its own, so that its processes are known by the kernel. That takes root.
type Groups struct {
	root string // where the hierarchy of version 2 is mounted
}

// FindGroups finds the hierarchy and tries it out on a cgroup without processes.
func FindGroups() (*Groups, error) {
	for _, root := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified"} {
		if _, err := os.Stat(filepath.Join(root, "cgroup.procs")); err != nil {
			continue
		}
		if _, err := os.Stat(filepath.Join(root, "cgroup.controllers")); err != nil {
			continue // version 1
		}
		trial := filepath.Join(root, "gshare-trial-"+strconv.Itoa(os.Getpid()))
		if err := os.Mkdir(trial, 0o755); err != nil {
			return nil, err
		}
		return &Groups{root}, os.Remove(trial)
	}
	return nil, fmt.Errorf("no cgroups of version 2 are mounted")
}

// enter puts a process into a new cgroup below its own, so that what bounds it now goes on bounding it.
func (g *Groups) enter(pid int, run string) (path string, err error) {
	m, err := cgroup.Of(pid)
	if err != nil {
		return "", err
	}
	parent, ok := m.Unified()
	if !ok {
		return "", fmt.Errorf("process %d has no cgroup of version 2", pid)
	}
	path = filepath.Join(parent, "gshare-"+run)
	if err := os.Mkdir(filepath.Join(g.root, path), 0o755); err != nil {
		return "", err
	}
	procs := filepath.Join(g.root, path, "cgroup.procs")
	if err := os.WriteFile(procs, []byte(strconv.Itoa(pid)), 0); err != nil {
		g.remove(path)
		return "", err
	}
	return path, nil
}

// remove deletes the cgroup, unless processes that never used the device linger in it.
func (g *Groups) remove(path string) { _ = os.Remove(filepath.Join(g.root, path)) }

// admit says whether a process belongs to a run.
func (r *run) admit(p process.Process) error {
	if r.Group == "" {
		if p.UID != r.UID && p.UID != 0 {
			return fmt.Errorf("it is of user %d, the run of user %d", p.UID, r.UID)
		}
		return nil
	}
	m, err := cgroup.Of(p.PID)
	if err != nil {
		return err
	}
	if path, ok := m.Unified(); !ok || !cgroup.Below(path, r.Group) {
		return fmt.Errorf("its cgroup %s is not that of the run", path)
	}
	return nil
}
