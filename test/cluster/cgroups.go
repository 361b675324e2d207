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

// hierarchies returns the roots of the mounted cgroup trees: one of version 2, or one for each controller of version 1.
func hierarchies() ([]string, error) {
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

// makeCgroup makes the cgroup, such as /cluster/node, with all controllers in every hierarchy.
func makeCgroup(name string) error {
	roots, err := hierarchies()
	if err != nil {
		return err
	}
	for _, root := range roots {
		folder := root
		for part := range strings.SplitSeq(strings.Trim(name, "/"), "/") {
			err := makeChild(folder, part)
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

func makeChild(parent, name string) error {
	if err := enable(parent); err != nil {
		return err
	}
	child := filepath.Join(parent, name)
	if err := os.Mkdir(child, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return copyCpuset(parent, child)
}

// enable hands all controllers of a version 2 cgroup down to its children.
func enable(folder string) error {
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

// copyCpuset is needed in version 1, where a new cpuset is empty and accepts no process.
func copyCpuset(parent, child string) error {
	if _, err := os.Stat(filepath.Join(child, "cpuset.cpu_exclusive")); err != nil {
		return nil // not a cpuset of version 1
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

// removeCgroup removes the cgroup and all below it. Their processes have to be dead, but the kernel may not have
// noticed yet.
func removeCgroup(name string) error {
	roots, err := hierarchies()
	if err != nil {
		return err
	}
	for _, root := range roots {
		if err := removeTree(filepath.Join(root, name)); err != nil {
			return fmt.Errorf("remove cgroup: %w", err)
		}
	}
	return nil
}

func removeTree(folder string) error {
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
		if err := removeBusy(folder); err != nil {
			return err
		}
	}
	return nil
}

func removeBusy(folder string) error {
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
