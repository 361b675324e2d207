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

// sweeper releases the grants of ended pods, and applies what pods have changed.
type sweeper struct {
	*Options
	granter *granter
	devices *deviceMonitor
}

// loop sweeps when something may have ended, and now and then without a cause.
func (s *sweeper) loop(ctx context.Context) {
	for repeated := 0; ctx.Err() == nil; {
		repeated++
		if !s.sweep(ctx) {
			repeated = 0
		}
		if repeated == 0 || repeated > sweepRepeat {
			select {
			case <-ctx.Done():
			case <-s.granter.wake:
			case <-time.After(sweepPeriod):
			}
		}
		sleep(ctx, sweepPause)
	}
}

// watchLoop requests a sweep when the kubelet reports a change.
func (s *sweeper) watchLoop(ctx context.Context) {
	for ctx.Err() == nil {
		_ = s.Pods.Watch(ctx, func() { signal(s.granter.wake) }) // the watch is started again, whatever has ended it
		signal(s.granter.wake)
		sleep(ctx, sweepPause)
	}
}

// sweep releases the grants of pods that have ended or are gone, once their last process has ended: a pod that was deleted by force is
// gone before its containers are. It reports whether such processes live.
func (s *sweeper) sweep(ctx context.Context) (processesLeft bool) {
	grants := s.granter.grants.all() // before the pods, so that the pod of a newer grant is not missed among them
	ctx, cancel := context.WithTimeout(ctx, sweepPeriod)
	defer cancel()
	pods, err := s.Pods.List(ctx)
	if err != nil {
		return false // without the kubelet no pod is known to have ended
	}
	s.devices.setPodsBound(slices.ContainsFunc(pods, func(p *v1.Pod) bool { return kube.RequestsShare(p) && !kubelet.Ended(p) }))
	s.resize(pods)
	ended := slices.DeleteFunc(grants, func(granted grant.Grant) bool { return isActive(pods, granted.UID) })
	if len(ended) == 0 {
		return false
	}
	running, err := podsWithProcesses()
	if err != nil {
		s.Log.Error("failed to list processes", "error", err)
		return true
	}
	for _, granted := range ended {
		if running[granted.UID] {
			processesLeft = true
			continue
		}
		s.granter.release(granted)
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
