package standalone

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/gshare-dev/gshare/node/cgroup"
)

// Groups creates a cgroup for each run, by which the agent recognizes the processes of the run. It needs root.
type Groups struct {
	root string // where the hierarchy of version 2 is mounted
}

// FindGroups finds the mounted hierarchy of cgroup v2. It returns an error if no cgroup can be created there.
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
	return nil, fmt.Errorf("cgroup v2 is not mounted")
}

// groupName returns the name of a run's cgroup.
func groupName(run string) string { return "gshare-" + run }

// find returns the paths of the cgroups that have the name of a run's.
func (g *Groups) find(run string) (paths []string) {
	_ = filepath.WalkDir(g.root, func(dir string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() && entry.Name() == groupName(run) {
			paths = append(paths, strings.TrimPrefix(dir, g.root))
		}
		return nil // cgroups come and go meanwhile
	})
	return paths
}

// isPopulated reports whether a cgroup, or one below it, has processes. It assumes so if the kernel does not say.
func (g *Groups) isPopulated(path string) bool {
	text, err := os.ReadFile(filepath.Join(g.root, path, "cgroup.events"))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) { // ENODEV: removed since it was opened
		return false
	}
	return err != nil || !slices.Contains(strings.Split(string(text), "\n"), "populated 0")
}

// processes returns the PIDs of the processes of a cgroup and those below it.
func (g *Groups) processes(path string) (pids []int) {
	_ = filepath.WalkDir(filepath.Join(g.root, path), func(dir string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.IsDir() {
			return nil // cgroups come and go meanwhile
		}
		text, _ := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
		for _, line := range strings.Fields(string(text)) {
			if pid, err := strconv.Atoi(line); err == nil && pid > 0 { // 0: of another PID namespace
				pids = append(pids, pid)
			}
		}
		return nil
	})
	return pids
}

// enter moves a process into a new cgroup below its present one, whose limits therefore still apply. It returns the path of the new cgroup.
func (g *Groups) enter(pid int, run string) (path string, err error) {
	m, err := cgroup.Of(pid)
	if err != nil {
		return "", err
	}
	parent, ok := m.Unified()
	if !ok {
		return "", fmt.Errorf("process %d has no cgroup v2", pid)
	}
	path = filepath.Join(parent, groupName(run))
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

// confines reports whether a user is unable to move processes out of a cgroup. Root is able to, and so is a user with write access to
// cgroup.procs of a cgroup above it, such as below user@UID.service.
func (g *Groups) confines(path string, uid uint32) bool {
	for path != "/" {
		path = filepath.Dir(path)
		info, err := os.Stat(filepath.Join(g.root, path, "cgroup.procs"))
		if err != nil || mayWrite(info, uid) {
			return false
		}
	}
	return true
}

// mayWrite reports whether a user can write to a file, or can make it writable as its owner. It assumes so if the file is writable for group
// or others.
func mayWrite(info os.FileInfo, uid uint32) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	return !ok || uid == 0 || stat.Uid == uid || info.Mode()&0o022 != 0
}

// remove deletes a cgroup, unless it still has processes.
func (g *Groups) remove(path string) { _ = os.Remove(filepath.Join(g.root, path)) }
