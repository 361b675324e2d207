// Package cgroup finds the container of a process from its cgroups, whose names depend on container runtime, cgroup version and
// cgroup driver (systemd or cgroupfs).
package cgroup

import (
	"fmt"
	"os"
	"strings"
)

// Membership holds the cgroups of one process, one for each cgroup hierarchy.
type Membership []Line

// Line is one line of /proc/PID/cgroup: the cgroup of a process in one hierarchy.
type Line struct {
	Controllers string // comma-separated; empty for version 2
	Path        string
}

// Of reads the cgroups of a process. The caller must check afterwards that the PID has not been used for another process meanwhile.
func Of(pid int) (Membership, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		return nil, fmt.Errorf("cgroups of process %d: %w", pid, err)
	}
	return Parse(string(text))
}

// Parse parses the content of /proc/PID/cgroup.
func Parse(text string) (Membership, error) {
	var m Membership
	for line := range strings.Lines(text) {
		fields := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(fields) != 3 || !strings.HasPrefix(fields[2], "/") {
			return nil, fmt.Errorf("parse cgroup of a process: %.100q", line)
		}
		m = append(m, Line{fields[1], fields[2]})
	}
	return m, nil
}

// Unified returns the path of the process's cgroup in the v2 (unified) hierarchy; false if there is none.
func (m Membership) Unified() (path string, ok bool) {
	for _, line := range m {
		if line.Controllers == "" {
			return line.Path, true
		}
	}
	return "", false
}

// Below reports whether a cgroup path is parent or lies below it.
func Below(path, parent string) bool {
	return path == parent || strings.HasPrefix(path, strings.TrimSuffix(parent, "/")+"/")
}
