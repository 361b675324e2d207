package cluster

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gshare-dev/gshare/test/cluster/machine"
)

const cgroupMount = "/sys/fs/cgroup"

// cgroupRoots returns the mount points of the cgroup hierarchies: one for cgroup v2, or one for each controller of cgroup v1.
func cgroupRoots() ([]string, error) {
	if _, err := os.Stat(filepath.Join(cgroupMount, "cgroup.controllers")); err == nil {
		return []string{cgroupMount}, nil
	}
	files, err := filepath.Glob(filepath.Join(cgroupMount, "*", "cgroup.procs"))
	if err == nil && len(files) == 0 {
		err = errors.New("no cgroup hierarchy in " + cgroupMount)
	}
	for i, file := range files {
		files[i] = filepath.Dir(file)
	}
	return files, err
}

// createCgroup creates a cgroup, such as /cluster/node, in every hierarchy and enables all controllers for it.
func createCgroup(name string) error {
	roots, err := cgroupRoots()
	if err != nil {
		return err
	}
	for _, root := range roots {
		folder := root
		for part := range strings.SplitSeq(strings.Trim(name, "/"), "/") {
			err := createChildCgroup(folder, part)
			if errors.Is(err, unix.EROFS) || errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM) {
				err = fmt.Errorf("%w: %w", machine.ErrNotSupported, err)
			}
			if err != nil {
				return fmt.Errorf("make cgroup %s in %s: %w", part, folder, err)
			}
			folder = filepath.Join(folder, part)
		}
	}
	return nil
}

func createChildCgroup(parent, name string) error {
	if err := enableControllers(parent); err != nil {
		return err
	}
	child := filepath.Join(parent, name)
	if err := os.Mkdir(child, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return copyCpuset(parent, child)
}

// enableControllers enables all controllers of a cgroup for its children. In cgroup v1 it does nothing.
func enableControllers(folder string) error {
	controllers, err := os.ReadFile(filepath.Join(folder, "cgroup.controllers"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, controller := range strings.Fields(string(controllers)) {
		if err := os.WriteFile(filepath.Join(folder, "cgroup.subtree_control"), []byte("+"+controller), 0); err != nil {
			return err
		}
	}
	return nil
}

// copyCpuset copies the CPUs and memory nodes of a cgroup to its new child: in cgroup v1 a new cpuset is empty and accepts no process.
func copyCpuset(parent, child string) error {
	if _, err := os.Stat(filepath.Join(child, "cpuset.cpu_exclusive")); err != nil {
		return nil // not a cpuset of cgroup v1
	}
	for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
		value, err := os.ReadFile(filepath.Join(parent, file))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(child, file), bytes.TrimSpace(value), 0); err != nil {
			return err
		}
	}
	return nil
}

// removeCgroup removes a cgroup and its descendants from every hierarchy. It retries for some seconds, since the kernel may still
// count processes that have been killed.
func removeCgroup(name string) error {
	roots, err := cgroupRoots()
	if err != nil {
		return err
	}
	for _, root := range roots {
		if err := removeCgroupTree(filepath.Join(root, name)); err != nil {
			return fmt.Errorf("remove cgroup: %w", err)
		}
	}
	return nil
}

func removeCgroupTree(folder string) error {
	var folders []string
	err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() {
			folders = append(folders, path)
		}
		return err
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, folder := range slices.Backward(folders) {
		if err := removeEmptyCgroup(folder); err != nil {
			return err
		}
	}
	return nil
}

func removeEmptyCgroup(folder string) error {
	const attempts, pause = 100, 50 * time.Millisecond
	var err error
	for range attempts {
		if err = unix.Rmdir(folder); !errors.Is(err, unix.EBUSY) {
			break
		}
		time.Sleep(pause)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return &fs.PathError{Op: "rmdir", Path: folder, Err: err}
	}
	return nil
}
