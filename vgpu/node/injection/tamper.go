package injection

import (
	"path"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/gshare-dev/gshare/vgpu/node/grant"
)

// reservedEnvPrefixes are the prefixes of environment variables by which a pod could change its limits or request GPUs without a share.
var reservedEnvPrefixes = []string{"GSHARE_", "CUDA_MPS_", "CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "NVIDIA_MIG_"}

// stageVariables are the environment variables from which the containers of a pipeline know their stages. gshare-controller sets them in the
// pods that it cuts. Only python -m gshare serve reads them, and no limits depend on them.
var stageVariables = []string{"GSHARE_ATTACH", "GSHARE_STAGE", "GSHARE_STAGES"}

// isReserved reports whether only gshare may set an environment variable in a container with a share.
func isReserved(variable string) bool {
	return !slices.Contains(stageVariables, variable) &&
		slices.ContainsFunc(reservedEnvPrefixes, func(own string) bool { return strings.HasPrefix(variable, own) })
}

// protectedHostPaths returns the host paths that a pod must not mount, since it could then change what is injected into containers.
// directory is the agent's directory.
func protectedHostPaths(directory string) []string {
	return []string{directory, "/dev", "/proc", "/sys", "/etc/cdi", "/run/cdi", "/var/run", "/var/lib/kubelet"}
}

// Check returns a refusal for a container whose spec would allow it to bypass its share. directory is the agent's directory on the host.
func Check(pod *v1.Pod, container, directory string) *grant.Refusal {
	c := findContainer(pod, container)
	if c == nil {
		return grant.Unsafe("the pod has no container %s", container)
	}
	for _, e := range c.Env {
		if isReserved(e.Name) {
			return grant.Unsafe("container %s: remove env %.64s: only gshare may set it", c.Name, e.Name)
		}
	}
	if refusal := checkMounts(c); refusal != nil {
		return refusal
	}
	if refusal := checkPrivileges(c); refusal != nil {
		return refusal
	}
	return checkVolumes(pod, c, directory)
}

// findContainer returns the container or init container of this name, or nil.
func findContainer(pod *v1.Pod, name string) *v1.Container {
	for _, list := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			if list[i].Name == name {
				return &list[i]
			}
		}
	}
	return nil
}

// checkMounts returns a refusal for volume mounts on or below the paths that gshare injects. A mount above such a path is harmless, since it
// is made before the injected ones.
func checkMounts(c *v1.Container) *grant.Refusal {
	for _, m := range c.VolumeMounts {
		for _, own := range []string{PreloadPath, LibraryDir, SocketDir, MPSDir, StoreDir} {
			if isBelow(m.MountPath, own) {
				return grant.Unsafe("container %s: mount volume %.64s elsewhere: %.64s is reserved for gshare", c.Name, m.Name, m.MountPath)
			}
		}
	}
	return nil
}

// CheckPod returns a refusal for a pod with a resource claim if the pod's own fields, or those of any of its containers, would allow it to
// bypass its share. For pods that request shares by gshare's resources an admission policy does this, but it does not see for which device a
// claim is.
func CheckPod(pod *v1.Pod, directory string) *grant.Refusal {
	switch {
	case pod.Spec.HostPID:
		return grant.Unsafe("remove hostPID: a pod with a share may not see the processes of others")
	case pod.Spec.HostIPC:
		return grant.Unsafe("remove hostIPC: a pod with a share may not see the shared memory of others")
	}
	for _, c := range slices.Concat(pod.Spec.Containers, pod.Spec.InitContainers) {
		if refusal := Check(pod, c.Name, directory); refusal != nil {
			return refusal
		}
	}
	return nil
}

func checkPrivileges(c *v1.Container) *grant.Refusal {
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
		switch strings.TrimPrefix(strings.ToUpper(string(capability)), "CAP_") {
		case "ALL", "SYS_ADMIN", "SYS_PTRACE", "SYS_MODULE", "MKNOD", "DAC_READ_SEARCH", "BPF", "SYS_RAWIO":
			return grant.Unsafe("container %s: remove capability %.32s: it can undo what limits the share", c.Name, capability)
		}
	}
	return nil
}

func checkVolumes(pod *v1.Pod, c *v1.Container, directory string) *grant.Refusal {
	for _, v := range pod.Spec.Volumes {
		mounted := slices.ContainsFunc(c.VolumeMounts, func(m v1.VolumeMount) bool { return m.Name == v.Name })
		if v.HostPath == nil || !mounted {
			continue
		}
		for _, own := range protectedHostPaths(directory) {
			if isBelow(v.HostPath.Path, own) || isBelow(own, v.HostPath.Path) {
				return grant.Unsafe("container %s: remove hostPath %.64s: what gives GPUs to containers is there", c.Name, v.HostPath.Path)
			}
		}
	}
	return nil
}

func isBelow(p, parent string) bool {
	p, parent = path.Clean("/"+p), path.Clean("/"+parent)
	return p == parent || strings.HasPrefix(p, strings.TrimSuffix(parent, "/")+"/")
}
