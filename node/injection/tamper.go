package injection

import (
	"path"
	"regexp"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/gshare-dev/gshare/node/grant"
)

// What a pod with a share may not set. The admission policy gshare-isolation has the same expressions in its variables and gives the same verdict
// on every pod (test/admission/expressions), so that the API server refuses what the agent would. Paths are those of canonical.
var (
	// Capabilities with which a container can open other devices, or change what is mounted. SYS_PTRACE is not among them: a program may trace
	// its own processes without it, and `kubectl debug` adds it.
	Capabilities = regexp.MustCompile(`(?i)^(CAP_)?(ALL|BPF|DAC_READ_SEARCH|MKNOD|SYS_ADMIN|SYS_MODULE|SYS_RAWIO)$`)

	// HostPaths are the node's devices, files from which runtimes and the kubelet take devices, sockets that start programs on the node, and the
	// folders above. HarmlessDevices are exceptions: container runtimes let no container open a device that they did not give it.
	HostPaths = regexp.MustCompile(`^((var/)?run|etc|var|var/lib)?$|^(dev|proc|sys|etc/cdi|var/lib/kubelet)(/|$)|(^|/)\.\.(/|$)|` +
		`^(var/)?run/(cdi|containerd|cri|crio|dbus|docker|gshare|k0s|k3s|nri|nvidia|podman|systemd)`)
	HarmlessDevices = regexp.MustCompile(`^dev/(fuse|gdrdrv|hugepages[^/]*|infiniband|net)(/|$)`)

	// Choosers are environment variables by which NVIDIA's container runtime gives GPUs to any container.
	Choosers = regexp.MustCompile(`^NVIDIA_(VISIBLE_DEVICES$|MIG_)`)

	// Reserved are environment variables of containers with a share that only gshare sets, or that keep the hook from working. Unreserved are
	// exceptions: the hook's log, and what gshare-controller sets in the stages of a pipeline. CUDA_VISIBLE_DEVICES is not among them, because
	// the container gets the value of Edits instead of the pod's.
	Reserved   = regexp.MustCompile(`^(GSHARE_|CUDA_MPS_|LD_AUDIT$)`)
	Unreserved = regexp.MustCompile(`^GSHARE_(LOG|ATTACH|STAGES?)$`)

	// MountPaths are paths in containers with a share at or below which gshare mounts files. A mount above them is harmless, since it is made
	// before. In most images, /var/run is a link to /run.
	MountPaths = regexp.MustCompile(`^(etc/ld\.so\.preload|usr/lib/gshare|(var/)?run/gshare(-mps|-store)?)(/|$)|(^|/)\.\.(/|$)`)
)

// NoGPUs are the values with which NVIDIA_VISIBLE_DEVICES gives no GPUs.
var NoGPUs = []string{"none", "void"}

// Check returns a refusal for a container with a share if fields of its pod would allow it to bypass the share. directory is the agent's directory on
// the host, which the policy assumes to be the default.
func Check(pod *v1.Pod, container, directory string) *grant.Refusal {
	switch {
	case pod.Spec.HostPID:
		return grant.Unsafe("remove hostPID: a pod with a share may not see the processes of others")
	case pod.Spec.HostIPC:
		return grant.Unsafe("remove hostIPC: a pod with a share may not see the shared memory of others")
	}
	if refusal := checkVolumes(pod, directory); refusal != nil {
		return refusal
	}
	found := false
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) { // all, because they may share Linux namespaces and volumes
		if refusal := checkPrivileges(&c); refusal != nil {
			return refusal
		}
		if c.Name != container {
			continue
		}
		found = true
		if refusal := checkInjected(&c); refusal != nil {
			return refusal
		}
	}
	if !found {
		return grant.Unsafe("the pod has no container %s", container)
	}
	return nil
}

func checkVolumes(pod *v1.Pod, directory string) *grant.Refusal {
	for _, v := range pod.Spec.Volumes {
		if v.HostPath == nil {
			continue
		}
		p := canonical(v.HostPath.Path)
		protected := HostPaths.MatchString(p) && !HarmlessDevices.MatchString(p)
		if protected || isBelow(v.HostPath.Path, directory) || isBelow(directory, v.HostPath.Path) {
			return grant.Unsafe("remove hostPath %.64s: what gives GPUs to containers is there", v.HostPath.Path)
		}
	}
	return nil
}

// checkPrivileges returns a refusal for a container of a pod with a share, whether it has the share or not.
func checkPrivileges(c *v1.Container) *grant.Refusal {
	for _, e := range c.Env {
		if Choosers.MatchString(e.Name) && !slices.Contains(NoGPUs, e.Value) {
			return grant.Unsafe("container %s: remove env %.64s: it requests GPUs without a share", c.Name, e.Name)
		}
	}
	s := c.SecurityContext
	switch {
	case s == nil:
		return nil
	case s.Privileged != nil && *s.Privileged:
		return grant.Unsafe("container %s: remove privileged: it sees every GPU of the node", c.Name)
	case s.Capabilities == nil:
		return nil
	}
	for _, capability := range s.Capabilities.Add {
		if Capabilities.MatchString(string(capability)) {
			return grant.Unsafe("container %s: remove capability %.32s: it can undo what limits the share", c.Name, capability)
		}
	}
	return nil
}

// checkInjected returns a refusal for a container with a share that sets what gshare injects. The kubelet mounts a file at the path for the termination
// message, too.
func checkInjected(c *v1.Container) *grant.Refusal {
	for _, e := range c.Env {
		if Reserved.MatchString(e.Name) && !Unreserved.MatchString(e.Name) {
			return grant.Unsafe("container %s: remove env %.64s: only gshare may set it", c.Name, e.Name)
		}
	}
	paths := []string{c.TerminationMessagePath}
	for _, m := range c.VolumeMounts {
		paths = append(paths, m.MountPath)
	}
	for _, p := range paths {
		if MountPaths.MatchString(canonical(p)) {
			return grant.Unsafe("container %s: mount elsewhere than at %.64s: it is reserved for gshare", c.Name, p)
		}
	}
	return nil
}

// canonical returns a path without the slash at its beginning, redundant slashes and dots. It keeps "..".
func canonical(p string) string {
	return strings.Join(slices.DeleteFunc(strings.Split(p, "/"), func(part string) bool { return part == "" || part == "." }), "/")
}

func isBelow(p, parent string) bool {
	p, parent = path.Clean("/"+p), path.Clean("/"+parent)
	return p == parent || strings.HasPrefix(p, strings.TrimSuffix(parent, "/")+"/")
}
