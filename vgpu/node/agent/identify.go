package agent

import (
	"context"
	"errors"
	"os"
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

// containerOf asks the kernel for the container of a process.
func containerOf(pid int) (cgroup.Container, error) {
	m, err := cgroup.Of(pid)
	if err != nil {
		return cgroup.Container{}, err
	}
	return m.Container()
}

func ownContainer() cgroup.Container {
	c, _ := containerOf(os.Getpid()) // an error: in none
	return c
}

// identify says of the processes on the node's slices what the rule has to know. Those that have ended meanwhile are left out,
// and the MPS servers that the agent's own daemons have started.
func (g *guard) identify(ctx context.Context, processes []gpu.Process) (known []watchdog.Process) {
	g.mu.Lock()
	inv := g.inventory
	g.mu.Unlock()
	sessions, listed := g.sessions(), false
	for _, p := range processes {
		if !slices.ContainsFunc(inv.Slices(), func(s inventory.Slice) bool { return s.ID == p.Slice }) {
			continue // not gshare's
		}
		born, c, ok := g.whois(p.PID)
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
			PID: p.PID, Born: born, Slice: p.Slice, Pod: c.PodUID, Container: name, Session: sessions[p.PID],
			Lent: g.isLent(inv, pod, name, p.Slice), Ticketed: ticketed(pod, name),
		})
	}
	return known
}

// whois tells when a process was born and in which container of a pod it is, if in any.
func (g *guard) whois(pid int) (born uint64, c cgroup.Container, ok bool) {
	c, err := g.ContainerOf(pid)
	outside := errors.Is(err, cgroup.ErrNoContainer)
	if err != nil && !outside || c == g.own && !outside || outside && process.Program(pid) == mps.ServerProgram {
		return 0, c, false
	}
	born, err = process.Born(pid)
	return born, c, err == nil
}

// listPods asks the kubelet which containers there are. Without an answer a container has no name for a while.
func (g *guard) listPods(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, recordLimit)
	defer cancel()
	if pods, err := g.Pods.List(ctx); err == nil {
		g.pods = pods
	}
}

// find gives the pod of a container, nil where the kubelet has not told of it, and its name there.
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

// ticketed says that the kubelet has given the container tickets, or may have.
func ticketed(pod *v1.Pod, name string) bool {
	if pod == nil || name == "" {
		return pod == nil || kube.Asks(pod)
	}
	return slices.Contains(kube.Holders(pod), name)
}

// isLent says that another plugin has given the container the slice.
func (g *guard) isLent(inv inventory.Inventory, pod *v1.Pod, name, slice string) bool {
	if pod == nil {
		return false
	}
	for _, l := range g.lent {
		if l.Namespace == pod.Namespace && l.Pod == pod.Name && (name == "" || l.Container == name) &&
			slices.Contains(inv.Lent(l.Resource, l.Device), slice) {
			return true
		}
	}
	return false
}

// sessions are the processes that the token server knows.
func (g *guard) sessions() map[int]bool {
	pids := map[int]bool{}
	for _, c := range g.server.Snapshot() {
		for _, v := range c.VGPUs {
			for _, p := range v.Processes {
				pids[p.PID] = true
			}
		}
	}
	return pids
}
