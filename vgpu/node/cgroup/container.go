package cgroup

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

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

// containerInPath returns the container that a cgroup path names; false if there is none. Of nested pods it takes the outermost, since a
// container may create cgroups below its own.
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
