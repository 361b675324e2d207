package mps

import (
	"errors"
	"os"

	"github.com/gshare-dev/gshare/vgpu/node/cgroup"
	"github.com/gshare-dev/gshare/vgpu/node/process"
)

// A tenant can give a program any name, arguments and environment. Whose process it is, and that it is in a pod, the kernel says.

// ofAgent says that a process has the agent's user, as daemons have. Of servers that is not known for all drivers.
func ofAgent(pid int) bool {
	uid, err := process.User(pid)
	return err == nil && uid == os.Getuid()
}

// inOtherPod also holds for a process of which it is not known. A daemon is in the agent's own pod until it is set apart.
func inOtherPod(pid int) bool {
	c, err := containerOf(pid)
	if errors.Is(err, cgroup.ErrNoContainer) {
		return false
	}
	own, _ := containerOf(os.Getpid())
	return err != nil || c.PodUID != own.PodUID
}

func containerOf(pid int) (cgroup.Container, error) {
	m, err := cgroup.Of(pid)
	if err != nil {
		return cgroup.Container{}, err
	}
	return m.Container()
}
