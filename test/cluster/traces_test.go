package cluster_test

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// traces lists what currently exists on this machine of a cluster, which is identified by the name of its directory.
type traces struct{ processes, mounts, cgroups, files []string }

func (t traces) String() string {
	return fmt.Sprintf("processes %v, mounts %v, cgroups %v, files %v", t.processes, t.mounts, t.cgroups, t.files)
}

func (t traces) none() bool {
	return len(t.processes)+len(t.mounts)+len(t.cgroups)+len(t.files) == 0
}

func find(t *testing.T, dir string) traces {
	t.Helper()
	name := filepath.Base(dir)
	found := traces{processes: processesOf(t, name)}
	for line := range strings.Lines(read(t, "/proc/self/mountinfo")) {
		if strings.Contains(line, name) {
			found.mounts = append(found.mounts, line)
		}
	}
	found.cgroups = foldersNamed(t, "/sys/fs/cgroup", name)
	found.files = foldersNamed(t, os.TempDir(), name)
	return found
}

// processesOf returns the processes that have a mount or a cgroup of the cluster, which all processes on its machines have.
func processesOf(t *testing.T, name string) []string {
	t.Helper()
	var found []string
	folders, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	for _, folder := range folders {
		about := read(t, folder+"/mountinfo") + read(t, folder+"/cgroup")
		if strings.Contains(about, name) {
			found = append(found, filepath.Base(folder)+" "+strings.TrimSpace(read(t, folder+"/comm")))
		}
	}
	return found
}

// read reads a file of /proc. The files of a process that has just ended are empty.
func read(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil && !strings.HasPrefix(path, "/proc/") {
		t.Fatal(err)
	}
	return string(content)
}

// foldersNamed searches a folder and one level below it.
func foldersNamed(t *testing.T, root, name string) []string {
	t.Helper()
	var found []string
	for _, pattern := range []string{name, "*/" + name} {
		paths, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		found = append(found, paths...)
	}
	return found
}

// settings returns the settings of this machine's kernel and network that a cluster must leave unchanged.
func settings(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	for _, name := range []string{
		"vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops", "kernel/hostname",
		"kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes", "net/ipv4/ip_forward",
	} {
		fmt.Fprintf(&all, "%s %s", name, read(t, "/proc/sys/"+name))
	}
	interfaces, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range interfaces {
		fmt.Fprintln(&all, i.Name)
	}
	fmt.Fprintf(&all, "iptables %s", read(t, "/proc/net/ip_tables_names"))
	return all.String()
}
