package agent

import (
	"context"
	"errors"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/node/cgroup"
	"github.com/gshare-dev/gshare/vgpu/node/gpu"
	"github.com/gshare-dev/gshare/vgpu/node/inventory"
	"github.com/gshare-dev/gshare/vgpu/node/mps"
	"github.com/gshare-dev/gshare/vgpu/node/process"
	"github.com/gshare-dev/gshare/vgpu/watchdog"
)

// containerOf returns the container of a process, by its cgroup.
func containerOf(pid int) (cgroup.Container, error) {
	m, err := cgroup.Of(pid)
	if err != nil {
		return cgroup.Container{}, err
	}
	return m.Container()
}

// identify returns the processes on the node's slices as the watchdog needs them. It leaves out those that have ended, the agent's
// own, and MPS servers.
func (g *guard) identify(ctx context.Context, processes []gpu.Process) (known []watchdog.Process) {
	inv := g.devices.current()
	sessions, listed := g.slices.sessions(), false
	for _, p := range processes {
		if !slices.ContainsFunc(inv.Slices(), func(s inventory.Slice) bool { return s.ID == p.Slice }) {
			continue // the device is not gshare's
		}
		startTime, c, ok := g.identityOf(p.PID)
		if !ok {
			continue
		}
		pod, name := find(g.pods, c)
		if name == "" && c.PodUID != "" && !listed {
			listed = true
			g.listPods(ctx)
			pod, name = find(g.pods, c)
		}
		known = append(known, watchdog.Process{
			PID: p.PID, StartTime: startTime, Slice: p.Slice, Pod: c.PodUID, Container: name, Session: sessions[p.PID],
			AllocatedElsewhere: g.isAllocatedElsewhere(inv, pod, name, p.Slice), Ticketed: hasTickets(pod, name),
		})
	}
	return known
}

// identityOf returns the start time of a process, and its container; zero where it is in none. ok is false for a process that has ended,
// one of the agent's own container, and an MPS server outside of containers.
func (g *guard) identityOf(pid int) (startTime uint64, c cgroup.Container, ok bool) {
	c, err := g.ContainerOf(pid)
	outside := errors.Is(err, cgroup.ErrNoContainer)
	if err != nil && !outside || c == g.own && !outside || outside && process.Program(pid) == mps.ServerProgram {
		return 0, c, false
	}
	startTime, err = process.StartTime(pid)
	return startTime, c, err == nil
}

// listPods updates the pods from the kubelet. Where it does not answer, a new container stays without a name until the next observation.
func (g *guard) listPods(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, kubeletTimeout)
	defer cancel()
	if pods, err := g.Pods.List(ctx); err == nil {
		g.pods = pods
	}
}

// find returns the pod of a container, nil where it is not listed, and the container's name in it, empty where its ID is not.
func find(pods []*v1.Pod, c cgroup.Container) (pod *v1.Pod, name string) {
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

// hasTickets reports whether the kubelet has allocated tickets to a container, or may have.
func hasTickets(pod *v1.Pod, name string) bool {
	if pod == nil || name == "" {
		return pod == nil || kube.RequestsShare(pod)
	}
	return slices.Contains(kube.ContainersWithVGPUs(pod), name)
}

// isAllocatedElsewhere reports whether another device plugin has allocated the slice to the container.
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
