package standalone

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

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

// holds says that a user cannot take processes out of a cgroup. Who may write the list of one above it can: root, and below
// user@UID.service that user.
func (g *Groups) holds(path string, uid uint32) bool {
	for path != "/" {
		path = filepath.Dir(path)
		info, err := os.Stat(filepath.Join(g.root, path, "cgroup.procs"))
		if err != nil || mayWrite(info, uid) {
			return false
		}
	}
	return true
}

// mayWrite says that a user may write a file, or could let himself; any user, where it is more than the owner's.
func mayWrite(info os.FileInfo, uid uint32) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	return !ok || uid == 0 || stat.Uid == uid || info.Mode()&0o022 != 0
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
