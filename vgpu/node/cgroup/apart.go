package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
)

// Apart is a cgroup outside of all containers and services: a process in it outlives the one that started it, which may be
// ended with all of its container. The zero value is none.
type Apart struct {
	Mount string // of all hierarchies: /sys/fs/cgroup
	Name  string // of the cgroup, below the root of each
}

// Enter puts a process there, in every hierarchy; what it starts from now on is there too.
func (a Apart) Enter(pid int) (all error) {
	if a == (Apart{}) {
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

func (a Apart) enter(root string, pid int) error {
	dir := filepath.Join(root, a.Name)
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := useAllProcessors(root, dir); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0)
}

// useAllProcessors gives a new cgroup of version 1 what it takes nobody in without. The root of version 2 has no such files.
func useAllProcessors(root, dir string) error {
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

// Remove takes the cgroup away. It fails while there are processes in it.
func (a Apart) Remove() (all error) {
	if a == (Apart{}) {
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

// hierarchies are the roots: one of version 2, or many of version 1, with one of version 2 among them or not.
func (a Apart) hierarchies() ([]string, error) {
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
