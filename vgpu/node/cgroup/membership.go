// Package cgroup tells which container a process belongs to. The kernel says in which cgroups the process is; container
// runtimes and kubelets name the cgroups of containers in a few forms, for version 1 and 2 of cgroups, with systemd as
// the manager and without.
package cgroup

import (
	"fmt"
	"os"
	"strings"
)

// Membership is the cgroups of one process.
type Membership []Line

// Line is the place of a process in one hierarchy.
type Line struct {
	Controllers string // comma-separated; empty for version 2
	Path        string
}

// Of reads the cgroups of a process. That the PID still means the same process is the caller's to check, afterwards.
func Of(pid int) (Membership, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		return nil, fmt.Errorf("cgroups of process %d: %w", pid, err)
	}
	return Parse(string(text))
}

// Parse reads what /proc/PID/cgroup holds.
func Parse(text string) (Membership, error) {
	var m Membership
	for line := range strings.Lines(text) {
		fields := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(fields) != 3 || !strings.HasPrefix(fields[2], "/") {
			return nil, fmt.Errorf("%.100q is no cgroup of a process", line)
		}
		m = append(m, Line{fields[1], fields[2]})
	}
	return m, nil
}

// Unified is the path in the hierarchy of version 2.
func (m Membership) Unified() (path string, ok bool) {
	for _, line := range m {
		if line.Controllers == "" {
			return line.Path, true
		}
	}
	return "", false
}

// Below says that the path is the parent or lies below it.
func Below(path, parent string) bool {
	return path == parent || strings.HasPrefix(path, strings.TrimSuffix(parent, "/")+"/")
}
