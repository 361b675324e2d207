package cgroup

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// ErrNoContainer is returned for a process that is in no container of a pod.
var ErrNoContainer = errors.New("the process is in no container of a pod")

// Container is a container of a pod.
type Container struct {
	PodUID string // with dashes, except for static pods, which have none
	ID     string // 64 hexadecimal digits
}

var (
	// podName is the cgroup of a pod: pod<uid>, or kubepods-burstable-pod<uid with underscores>.slice.
	podName = regexp.MustCompile(`^(?:[a-z-]+-)?pod([0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}|[0-9a-f]{32})(?:\.slice)?$`)
	// containerName is the cgroup of a container below its pod: <id>, or <runtime>-<id>.scope.
	containerName = regexp.MustCompile(`^(?:(?:cri-containerd|crio|docker)-)?([0-9a-f]{64})(?:\.scope)?$`)
)

// Container returns the container of a process, or an error if the hierarchies name different ones.
func (m Membership) Container() (Container, error) {
	var found Container
	for _, line := range m {
		c, ok := containerOf(line.Path)
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

// containerOf returns the container in a path: that of the outermost pod, since cgroups below a container may be of its own making.
func containerOf(path string) (Container, bool) {
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

// splitPath returns the names in a path. A runtime with the cgroupfs driver under a kubelet with systemd joins slice, runtime and
// container with colons.
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

// ContainerPath returns the path of the container's cgroup from the root of the version 2 hierarchy.
func (m Membership) ContainerPath() (string, error) {
	path, ok := m.Unified()
	if _, is := containerOf(path); !ok || !is {
		return "", ErrNoContainer
	}
	names := strings.Split(path, "/")
	for i := range names {
		if cut := strings.Join(names[:i+1], "/"); names[i] == ".." {
			return "", fmt.Errorf("cgroup %s is outside of the agent's cgroup namespace", path)
		} else if _, is := containerOf(cut); is {
			return cut, nil
		}
	}
	return "", ErrNoContainer
}
