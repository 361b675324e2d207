package agent

import (
	"context"
	"os"
	"slices"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gshare-dev/gshare/node/cgroup"
	"github.com/gshare-dev/gshare/node/grant"
	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// Sweeps compare the grants with the pods: soon after a change, and from time to time without one. The kubelet's watch does not report
// changes of annotations alone, so sweeps are frequent while the node has instances of functions, whose wanted level is an annotation.
const (
	sweepPause     = 200 * time.Millisecond // changes within this time share a sweep
	sweepPeriod    = 10 * time.Second
	instancePeriod = 250 * time.Millisecond // together with sweepPause, the delay until a new level is noticed
	sweepRepeat    = 50                     // number of sweeps in a row while processes of ended pods live
)

// sweeper releases the grants of ended pods, serves containers that could not be served before, and applies changed SM limits of running pods.
type sweeper struct {
	*Options
	granter   *granter
	devices   *deviceMonitor
	residency *residencyKeeper
	period    time.Duration // until the next sweep without a change
}

// loop sweeps whenever it is woken, and periodically, until the context ends. While processes of ended pods remain, it sweeps without
// waiting, up to sweepRepeat times.
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
			case <-time.After(s.period):
			}
		}
		sleep(ctx, sweepPause)
	}
}

// watchLoop wakes the sweeper when the kubelet reports that a pod has changed.
func (s *sweeper) watchLoop(ctx context.Context) {
	for ctx.Err() == nil {
		_ = s.Pods.Watch(ctx, func() { signal(s.granter.wake) }) // whatever ends the watch, it is started again
		signal(s.granter.wake)
		sleep(ctx, sweepPause)
	}
}

// sweep releases the grants of pods that have ended or no longer exist, once their last process has ended: the containers of a
// force-deleted pod may outlive its Pod object. It reports whether such processes remain.
func (s *sweeper) sweep(ctx context.Context) (processesLeft bool) {
	grants := s.granter.grants.all() // listed before the pods, so that these include the pod of every grant
	ctx, cancel := context.WithTimeout(ctx, sweepPeriod)
	defer cancel()
	pods, err := s.Pods.List(ctx)
	s.period = sweepPeriod
	if slices.ContainsFunc(pods, func(p *v1.Pod) bool {
		return (p.Annotations[kube.AnnotationResidency] != "" || p.Annotations[kube.AnnotationTrialQuota] != "") && !kube.Ended(p)
	}) {
		s.period = instancePeriod
	}
	if err != nil {
		return false // without the kubelet, no pod is known to have ended
	}
	s.devices.setPodsBound(slices.ContainsFunc(pods, func(p *v1.Pod) bool { return kube.RequestsShare(p) && !kube.Ended(p) }))
	s.applySMLimits(pods)
	processesLeft = s.releaseEnded(grants, pods)
	s.serveUnserved()
	s.residency.observe(pods) // now, since what it wakes may need the memory that was released
	return processesLeft
}

// releaseEnded releases the grants of pods that are not active, unless a process of the pod is left. It reports whether there are such.
func (s *sweeper) releaseEnded(grants []grant.Grant, pods []*v1.Pod) (processesLeft bool) {
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

// serveUnserved tries again to serve containers for which that has failed, such as for lack of space for their policy files.
func (s *sweeper) serveUnserved() {
	before := len(s.granter.grants.unserved())
	if before == 0 {
		return
	}
	s.granter.serveRestored()
	if len(s.granter.grants.unserved()) < before {
		s.granter.publish()
	}
}

func isActive(pods []*v1.Pod, uid types.UID) bool {
	return slices.ContainsFunc(pods, func(p *v1.Pod) bool { return p.UID == uid && !kube.Ended(p) })
}

// podsWithProcesses returns the UIDs of the pods that have a running process on this machine, according to /proc.
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

// applySMLimits applies the SM limits that annotations of elastic pods request. A limit may move between the share's request and its placed
// limit, so the scheduler's accounting does not change.
func (s *sweeper) applySMLimits(pods []*v1.Pod) {
	for _, granted := range s.granter.grants.all() {
		i := slices.IndexFunc(pods, func(p *v1.Pod) bool { return p.UID == granted.UID })
		if i >= 0 && granted.Class() == share.Elastic {
			s.applySMLimit(&granted, pods[i])
		}
	}
}

// applySMLimit applies the SM limit of one container, and writes an event when the outcome differs from the previous one.
func (s *sweeper) applySMLimit(granted *grant.Grant, pod *v1.Pod) {
	defer s.granter.operations.lock(granted.ID())()
	running, served := s.granter.grants.serviceOf(granted.ID())
	if !served {
		return
	}
	placed := granted.VGPUs[0].Share.SMLimit
	limit, err := kube.SMLimitOf(pod, placed)
	if err == nil && limit != running.container.Status().VGPUs[0].CurrentSMLimit {
		err = running.container.Resize(limit)
	}
	note := ""
	switch {
	case err != nil:
		note = "; the limit was not changed: " + err.Error()
	case limit != placed:
		note = "; changed to " + limit.Percent()
	}
	if note == running.limitNote {
		return
	}
	s.granter.grants.updateService(granted.ID(), func(s *service) { s.limitNote = note })
	s.granter.publish()
	if err != nil {
		s.Cluster.Warn(podOf(*granted), eventLimitRefused, err.Error())
	} else {
		s.Cluster.Notify(podOf(*granted), eventLimitChanged, "the SM limit of container "+granted.Container+" is "+limit.Percent())
	}
}
