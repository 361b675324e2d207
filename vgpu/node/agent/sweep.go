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

// Sweeps compare the grants with the pods: soon after a change, and now and then without one.
const (
	sweepPause  = 200 * time.Millisecond // changes within it share a sweep
	sweepPeriod = 10 * time.Second
	sweepRepeat = 50 // sweeps in a row while processes of ended pods live
)

// sweepLoop releases the grants of ended pods. bound is called with whether pods with shares are bound to the node.
func (g *granter) sweepLoop(ctx context.Context, bound func(bool)) {
	for repeated := 0; ctx.Err() == nil; {
		repeated++
		if !g.sweep(ctx, bound) {
			repeated = 0
		}
		if repeated == 0 || repeated > sweepRepeat {
			select {
			case <-ctx.Done():
			case <-g.wake:
			case <-time.After(sweepPeriod):
			}
		}
		sleep(ctx, sweepPause)
	}
}

// watchLoop requests a sweep when the kubelet reports a change.
func (g *granter) watchLoop(ctx context.Context) {
	for ctx.Err() == nil {
		_ = g.Pods.Watch(ctx, func() { signal(g.wake) }) // the watch is started again, whatever has ended it
		signal(g.wake)
		sleep(ctx, sweepPause)
	}
}

// sweep releases the grants of pods that have ended or are gone, once their last process has ended: a pod that was deleted by force is
// gone before its containers are. It reports whether such processes live.
func (g *granter) sweep(ctx context.Context, bound func(bool)) (processesLeft bool) {
	grants := g.all() // before the pods, so that the pod of a newer grant is not missed among them
	ctx, cancel := context.WithTimeout(ctx, sweepPeriod)
	defer cancel()
	pods, err := g.Pods.List(ctx)
	if err != nil {
		return false // without the kubelet no pod is known to have ended
	}
	bound(slices.ContainsFunc(pods, func(p *v1.Pod) bool { return kube.Asks(p) && !kubelet.Ended(p) }))
	g.resize(pods)
	ended := slices.DeleteFunc(grants, func(granted grant.Grant) bool { return isActive(pods, granted.UID) })
	if len(ended) == 0 {
		return false
	}
	running, err := podsWithProcesses()
	if err != nil {
		g.Log.Error("failed to list processes", "error", err)
		return true
	}
	for _, granted := range ended {
		if running[granted.UID] {
			processesLeft = true
			continue
		}
		g.release(granted)
	}
	return processesLeft
}

// isActive reports whether a pod is listed and has not ended.
func isActive(pods []*v1.Pod, uid types.UID) bool {
	return slices.ContainsFunc(pods, func(p *v1.Pod) bool { return p.UID == uid && !kubelet.Ended(p) })
}

// podsWithProcesses returns the UIDs of the pods that have a living process.
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
