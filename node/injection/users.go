package injection

import (
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"github.com/gshare-dev/gshare/node/grant"
)

// CheckUsers returns a refusal for a container that could not load the hook. That is so if the hook's file is mounted noexec on the host and
// the pod has a user namespace of its own, in which the flag is locked; in other containers, the runtime's mount does not have the flag. The
// dynamic loader would only print a warning and run the program without the hook.
func (h Host) CheckUsers(pod *v1.Pod) *grant.Refusal { return checkUsers(pod, h.Hook, isNoExec) }

func checkUsers(pod *v1.Pod, hook string, isNoExec func(file string) bool) *grant.Refusal {
	if pod.Spec.HostUsers == nil || *pod.Spec.HostUsers || !isNoExec(hook) {
		return nil
	}
	return grant.Unsafe("remove hostUsers: false: a user namespace cannot load %.128s, which is mounted noexec on this node; "+
		"or let the agent have a directory that is mounted without noexec", hook)
}

// isNoExec reports whether the file is mounted noexec on the host. The agent's own mounts need not have the same flags as the host's, so it
// looks through process 1 if it can.
func isNoExec(file string) bool {
	for _, name := range []string{"/proc/1/root" + file, file} {
		var fs unix.Statfs_t
		if unix.Statfs(name, &fs) == nil {
			return fs.Flags&unix.ST_NOEXEC != 0
		}
	}
	return false
}
