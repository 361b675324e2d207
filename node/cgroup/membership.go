// Package cgroup finds the container of a process from its cgroups. The names of these depend on the container runtime, the cgroup version
// and the cgroup driver (systemd or cgroupfs).
package cgroup

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
)

// Membership holds the cgroups of one process, one for each cgroup hierarchy.
type Membership []Line

// Line is one line of /proc/PID/cgroup: the cgroup of a process in one hierarchy.
type Line struct {
	Controllers string // comma-separated; empty for version 2
	Path        string
}

// Of reads the cgroups of a process. The caller must check afterwards that the PID has not been reused meanwhile.
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

// ErrNoContainer is returned for a process that runs outside of all containers of pods.
var ErrNoContainer = errors.New("the process is in no container of a pod")

// Container identifies a container by its pod's UID and its ID at the container runtime.
type Container struct {
	PodUID string // with dashes, except for static pods, which have none
	ID     string // 64 hexadecimal digits
}

var (
	// podName matches the cgroup name of a pod: pod<uid>, or kubepods-burstable-pod<uid with underscores>.slice.
	podName = regexp.MustCompile(`^(?:[a-z-]+-)?pod([0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}|[0-9a-f]{32})(?:\.slice)?$`)
	// containerName matches the cgroup name of a container: <id>, or <runtime>-<id>.scope.
	containerName = regexp.MustCompile(`^(?:(?:cri-containerd|crio|docker)-)?([0-9a-f]{64})(?:\.scope)?$`)
)

// Container returns the container that a process's cgroups belong to. It returns ErrNoContainer if there is none, and another error if
// cgroup hierarchies disagree.
func (m Membership) Container() (Container, error) {
	var found Container
	for _, line := range m {
		c, ok := containerInPath(line.Path)
		switch {
		case !ok:
		case found != Container{} && found != c:
			return Container{}, fmt.Errorf("the process is in containers %.12s and %.12s", found.ID, c.ID)
		default:
			found = c
		}
	}
	if found == (Container{}) {
		return Container{}, ErrNoContainer
	}
	return found, nil
}

// containerInPath returns the container that a cgroup path names; false if there is none. If the path contains several pods, it uses the
// outermost, since a container may create cgroups below its own.
func containerInPath(path string) (Container, bool) {
	names := splitPath(path)
	for i, name := range names {
		pod := podName.FindStringSubmatch(name)
		if pod == nil {
			continue
		}
		if i+1 == len(names) {
			return Container{}, false
		}
		id := containerName.FindStringSubmatch(names[i+1])
		if id == nil {
			return Container{}, false
		}
		return Container{strings.ReplaceAll(pod[1], "_", "-"), id[1]}, true
	}
	return Container{}, false
}

// splitPath splits a cgroup path into its names. It also splits names of the form slice:runtime:container, which a runtime with the
// cgroupfs driver creates under a kubelet with the systemd driver.
func splitPath(path string) (names []string) {
	for name := range strings.SplitSeq(path, "/") {
		if parts := strings.Split(name, ":"); len(parts) == 3 {
			names = append(names, parts[0], parts[2])
		} else if name != "" {
			names = append(names, name)
		}
	}
	return names
}

// ContainerPath returns the path of the container's cgroup below the root of cgroup v2.
func (m Membership) ContainerPath() (string, error) {
	path, ok := m.Unified()
	if _, is := containerInPath(path); !ok || !is {
		return "", ErrNoContainer
	}
	names := strings.Split(path, "/")
	for i := range names {
		if cut := strings.Join(names[:i+1], "/"); names[i] == ".." {
			return "", fmt.Errorf("cgroup %s is outside of the agent's cgroup namespace", path)
		} else if _, is := containerInPath(cut); is {
			return cut, nil
		}
	}
	return "", ErrNoContainer
}
