package agent

import (
	"context"
	"os"
	"slices"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/node/cgroup"
	"github.com/gshare-dev/gshare/vgpu/node/grant"
	"github.com/gshare-dev/gshare/vgpu/node/kubelet"
)

// How often grants are held against the pods: soon after anything has happened, now and then without.
const (
	sweepSoon = 200 * time.Millisecond
	sweepSlow = 10 * time.Second
	lingerFor = 50 // sweeps soon after each other, for processes that are about to end
)

// sweepLoop releases what pods have left behind.
func (a *Agent) sweepLoop(ctx context.Context) {
	for lingered := 0; ctx.Err() == nil; {
		lingered++
		if !a.sweep(ctx) {
			lingered = 0
		}
		if lingered == 0 || lingered > lingerFor {
			select {
			case <-ctx.Done():
			case <-a.wake:
			case <-time.After(sweepSlow):
			}
		}
		pause(ctx, sweepSoon) // what happens together is looked at together
	}
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// watchLoop wakes the sweep when the kubelet says that something has happened.
func (a *Agent) watchLoop(ctx context.Context) {
	for ctx.Err() == nil {
		_ = a.Pods.Watch(ctx, func() { signal(a.wake) }) // whatever ended it, it is begun anew
		signal(a.wake)
		pause(ctx, sweepSoon)
	}
}

// sweep releases the grants of pods that have ended or are gone, once no process of theirs lives: a pod that was deleted by
// force is gone before its containers are. lingering says that there are such.
func (a *Agent) sweep(ctx context.Context) (lingering bool) {
	a.mu.Lock()
	grants := a.book.All() // before the pods: one that is granted later is not missed among them
	a.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, sweepSlow)
	defer cancel()
	pods, err := a.Pods.List(ctx)
	if err != nil {
		return false // the kubelet is away; nothing is known to have ended
	}
	a.setBound(pods)
	a.resize(pods)
	ended := slices.DeleteFunc(grants, func(g grant.Grant) bool { return lives(pods, g.UID) })
	if len(ended) == 0 {
		return false
	}
	running, err := podsWithProcesses()
	if err != nil {
		a.Log.Error("look for processes", "err", err)
		return true
	}
	for _, g := range ended {
		if running[g.UID] {
			lingering = true
			continue
		}
		a.release(g)
	}
	return lingering
}

func lives(pods []*v1.Pod, uid types.UID) bool {
	return slices.ContainsFunc(pods, func(p *v1.Pod) bool { return p.UID == uid && !kubelet.Ended(p) })
}

// setBound notes whether anything that is offered is in use, so that it must not shrink.
func (a *Agent) setBound(pods []*v1.Pod) {
	bound := slices.ContainsFunc(pods, func(p *v1.Pod) bool { return kube.Asks(p) && !kubelet.Ended(p) })
	a.mu.Lock()
	defer a.mu.Unlock()
	if bound = bound || len(a.book.All()) > 0; a.bound != bound {
		a.bound = bound
		signal(a.report)
	}
}

// podsWithProcesses finds the pods that have a living process, by the kernel's word.
func podsWithProcesses() (map[types.UID]bool, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	found := map[types.UID]bool{}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		m, err := cgroup.Of(pid)
		if err != nil {
			continue // it has ended
		}
		if c, err := m.Container(); err == nil {
			found[types.UID(c.PodUID)] = true
		}
	}
	return found, nil
}
