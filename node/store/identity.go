package store

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/gshare-dev/gshare/node/cgroup"
	"github.com/gshare-dev/gshare/node/process"
)

// ErrNoGrant is the error, from the function that Grants returns, for a process of a pod that has no share of the slice.
var ErrNoGrant = errors.New("the pod of the process has no share of the slice")

// Grants returns a function that identifies a process: the kernel tells its pod; the agent's records in a directory tell the pod's
// namespace, and that the pod has a share of the slice. The records are there even while the agent is away.
func Grants(directory, slice string) func(process.Process) (string, error) {
	return func(p process.Process) (string, error) {
		m, err := cgroup.Of(p.PID)
		if err != nil {
			return "", err
		}
		if !p.Alive() {
			return "", fmt.Errorf("process %d has ended", p.PID) // what was read may belong to another process
		}
		c, err := m.Container()
		if err != nil {
			return "", fmt.Errorf("process %d: %w", p.PID, err)
		}
		namespace, err := namespaceOf(directory, slice, c.PodUID)
		if err != nil {
			return "", fmt.Errorf("process %d of pod %s: %w", p.PID, c.PodUID, err)
		}
		return namespace, nil
	}
}

// namespaceOf returns the namespace of a pod that has a share of the slice.
func namespaceOf(directory, slice, pod string) (string, error) {
	grants, err := grantsOn(directory, slice, pod)
	if err != nil {
		return "", err
	}
	for _, g := range grants {
		if string(g.UID) == pod {
			return g.Namespace, nil
		}
	}
	return "", ErrNoGrant
}

// Users identifies a process by its user, on a machine without Kubernetes: the namespace is the user ID.
func Users(p process.Process) (string, error) { return strconv.FormatUint(uint64(p.UID), 10), nil }
