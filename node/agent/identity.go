package agent

import (
	"context"
	"errors"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/gshare-dev/gshare/node/cgroup"
	"github.com/gshare-dev/gshare/node/gpu"
	"github.com/gshare-dev/gshare/node/inventory"
	"github.com/gshare-dev/gshare/node/mps"
	"github.com/gshare-dev/gshare/node/process"
	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/watchdog"
)

// containerOf returns the container in whose cgroup a process runs.
func containerOf(pid int) (cgroup.Container, error) {
	m, err := cgroup.Of(pid)
	if err != nil {
		return cgroup.Container{}, err
	}
	return m.Container()
}

// identifyProcesses adds start time, pod and container to the listed GPU processes. It leaves out processes that have ended, the agent's own
// processes, MPS servers, model stores, processes on devices that gshare does not manage, and processes outside of pods that use only
// graphics, such as a display server.
func (g *guard) identifyProcesses(ctx context.Context, processes []gpu.Process) (known []watchdog.Process) {
	inv := g.devices.currentInventory()
	sessions, listed := g.slices.sessionPIDs(), false
	for _, p := range processes {
		if !slices.ContainsFunc(inv.Slices(), func(s inventory.Slice) bool { return s.ID == p.Slice }) {
			continue // the device is not gshare's
		}
		startTime, c, ok := g.identityOf(p.PID)
		if !ok || p.Graphics && c.PodUID == "" {
			continue
		}
		pod, name := findContainer(g.pods, c)
		if name == "" && c.PodUID != "" && !listed {
			listed = true
			g.listPods(ctx)
			pod, name = findContainer(g.pods, c)
		}
		known = append(known, watchdog.Process{
			PID: p.PID, StartTime: startTime, Slice: p.Slice, Pod: c.PodUID, Container: name, Memory: p.Memory, Session: sessions[p.PID],
			AllocatedElsewhere: g.isAllocatedElsewhere(inv, pod, name, p.Slice), HasDeviceIDs: hasDeviceIDs(pod, name),
		})
	}
	g.processes.setLibraries(known)
	return known
}

// identityOf returns the start time and the container of a process; the container is zero outside of containers. ok is false if the process
// has ended, belongs to the agent's own container, or is an MPS server or a model store.
func (g *guard) identityOf(pid int) (startTime uint64, c cgroup.Container, ok bool) {
	c, err := g.ContainerOf(pid)
	outside := errors.Is(err, cgroup.ErrNoContainer)
	if err != nil && !outside || c == g.own && !outside || outside && g.isOfNode(pid) {
		return 0, c, false
	}
	startTime, err = process.StartTime(pid)
	return startTime, c, err == nil
}

// isOfNode reports whether a process outside of containers belongs to the node's own services: an MPS server or a model store.
func (g *guard) isOfNode(pid int) bool {
	return process.Program(pid) == mps.ServerProgram || g.Stores != nil && g.Stores.Owns(pid)
}

// listPods replaces the cached pods by those that the kubelet lists now. After an error the cache stays as it is, and new containers have no
// name until the next observation.
func (g *guard) listPods(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, kubeletTimeout)
	defer cancel()
	if pods, err := g.Pods.List(ctx); err == nil {
		g.pods = pods
	}
}

// findContainer returns the pod of a container and the container's name. The pod is nil if it is not listed; the name is empty if the pod's
// status does not list the container ID.
func findContainer(pods []*v1.Pod, c cgroup.Container) (pod *v1.Pod, name string) {
	i := slices.IndexFunc(pods, func(p *v1.Pod) bool { return string(p.UID) == c.PodUID })
	if i < 0 {
		return nil, ""
	}
	s := &pods[i].Status
	for _, status := range slices.Concat(s.ContainerStatuses, s.InitContainerStatuses, s.EphemeralContainerStatuses) {
		if _, id, _ := strings.Cut(status.ContainerID, "://"); id == c.ID {
			return pods[i], status.Name
		}
	}
	return pods[i], ""
}

// hasDeviceIDs reports whether the container requests gshare/vgpu devices. If the pod or the container is not known, it returns whether that
// is possible.
func hasDeviceIDs(pod *v1.Pod, name string) bool {
	if pod == nil || name == "" {
		return pod == nil || kube.RequestsShare(pod)
	}
	return slices.Contains(kube.ContainersWithVGPUs(pod), name)
}

// isAllocatedElsewhere reports whether the device plugin of another vendor or product has allocated the slice to the container.
func (g *guard) isAllocatedElsewhere(inv inventory.Inventory, pod *v1.Pod, name, slice string) bool {
	if pod == nil {
		return false
	}
	for _, l := range g.elsewhere {
		if l.Namespace == pod.Namespace && l.Pod == pod.Name && (name == "" || l.Container == name) &&
			slices.Contains(inv.SlicesOf(l.Resource, l.Device), slice) {
			return true
		}
	}
	return false
}
