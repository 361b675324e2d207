package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
)

// Detached is a cgroup outside of all containers and systemd services, so that a process in it outlives the container that started it. The
// zero value stands for no cgroup.
type Detached struct {
	Mount string // of all cgroup hierarchies: /sys/fs/cgroup
	Name  string // of the cgroup, relative to the root of each hierarchy
}

// Enter moves a process into the cgroup, in every cgroup hierarchy, creating the cgroup if it does not exist. Children that the process
// starts later are in the cgroup too.
func (a Detached) Enter(pid int) (all error) {
	if a == (Detached{}) {
		return nil
	}
	roots, err := a.hierarchies()
	if err != nil {
		return err
	}
	for _, root := range roots {
		all = errors.Join(all, a.enter(root, pid))
	}
	return all
}

func (a Detached) enter(root string, pid int) error {
	dir := filepath.Join(root, a.Name)
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := copyCPUSet(root, dir); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0)
}

// copyCPUSet gives a new cgroup v1 the CPUs and memory nodes of the root: until it has some, it accepts no process. In cgroup v2 it does
// nothing.
func copyCPUSet(root, dir string) error {
	for _, name := range []string{"cpuset.cpus", "cpuset.mems"} {
		all, err := os.ReadFile(filepath.Join(root, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err := errors.Join(err, os.WriteFile(filepath.Join(dir, name), all, 0)); err != nil {
			return err
		}
	}
	return nil
}

// Remove deletes the cgroup. It fails while processes are in it.
func (a Detached) Remove() (all error) {
	if a == (Detached{}) {
		return nil
	}
	roots, err := a.hierarchies()
	if err != nil {
		return err
	}
	for _, root := range roots {
		if err := os.Remove(filepath.Join(root, a.Name)); !errors.Is(err, fs.ErrNotExist) {
			all = errors.Join(all, err)
		}
	}
	return all
}

// hierarchies returns the root directories of the mounted cgroup hierarchies: one for cgroup v2, several for v1 or a hybrid setup.
func (a Detached) hierarchies() ([]string, error) {
	if _, err := os.Stat(filepath.Join(a.Mount, "cgroup.controllers")); err == nil {
		return []string{a.Mount}, nil
	}
	procs, err := filepath.Glob(filepath.Join(a.Mount, "*", "cgroup.procs"))
	if err != nil {
		return nil, err
	}
	if len(procs) == 0 {
		return nil, fmt.Errorf("no cgroups are mounted below %s", a.Mount)
	}
	for i, p := range procs {
		procs[i] = filepath.Dir(p)
	}
	return procs, nil
}
