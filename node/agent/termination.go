package agent

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gshare-dev/gshare/node/cgroup"
	"github.com/gshare-dev/gshare/node/grant"
	"github.com/gshare-dev/gshare/vgpu/kube"
)

// The kubelet kills a pod when its termination grace period is over. Shortly before that, the agent makes the MPS daemon end the CUDA work
// of the processes that are left: a client that is killed while it has work may crash the MPS server, and with it the other clients.
const (
	terminationLead   = time.Second
	terminationPeriod = 250 * time.Millisecond
)

// terminations ends the CUDA work of pods shortly before their termination grace period is over, and reports containers that were killed
// before their work was ended.
type terminations struct {
	*drains
	seen map[string]bool // IDs of the ended containers that the kubelet listed last; nil before the first list
}

// loop polls for terminating pods until the context ends, and ends their CUDA work in time.
func (t *terminations) loop(ctx context.Context) {
	if !t.MPS.Enabled() {
		return
	}
	var ends sync.WaitGroup
	defer ends.Wait()
	done := map[types.UID]bool{}
	for ; ctx.Err() == nil; sleep(ctx, terminationPeriod) {
		pods, err := t.listPods(ctx)
		if err != nil {
			continue
		}
		maps.DeleteFunc(done, func(uid types.UID, _ bool) bool {
			return !slices.ContainsFunc(pods, func(p *v1.Pod) bool { return p.UID == uid })
		})
		for _, g := range t.expiring(pods, done, time.Now()) {
			ends.Go(func() { t.endCUDAWork(ctx, g) }) // concurrent, as a hung daemon must not delay those of other slices
		}
		for _, e := range t.newlyKilled(pods) {
			if !done[e.pod.UID] {
				t.reportKilled(e)
			}
		}
	}
}

// listPods returns the node's pods; none if there is no grant.
func (t *terminations) listPods(ctx context.Context) ([]*v1.Pod, error) {
	if !t.grants.hasAny() {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, kubeletTimeout)
	defer cancel()
	return t.Pods.List(ctx)
}

// expiring returns the grants of the terminating pods whose grace period is nearly over. It skips the pods that are in done, and adds the
// others to it.
func (t *terminations) expiring(pods []*v1.Pod, done map[types.UID]bool, now time.Time) (expiring []grant.Grant) {
	for _, p := range pods {
		if p.DeletionTimestamp == nil || kube.Ended(p) || done[p.UID] || now.Before(p.DeletionTimestamp.Add(-terminationLead)) { // the timestamp is the end of the grace period
			continue
		}
		done[p.UID] = true
		expiring = append(expiring, t.grants.ofPod(p.UID)...)
	}
	return expiring
}

// endCUDAWork makes the MPS daemon end the CUDA contexts of the pod's processes on the slice of a grant.
func (t *terminations) endCUDAWork(ctx context.Context, g grant.Grant) {
	err := t.slices.terminateClients(ctx, g.VGPUs[0].Slice, func(pid int) bool {
		c, err := t.ContainerOf(pid)
		return err == nil && c.PodUID == string(g.UID)
	})
	t.metrics.countDrain(atEndOfTime, err)
	if err != nil {
		t.Log.Warn("failed to end the CUDA work of a terminating pod", "container", g.String(), "error", err)
	}
}

// killedContainer is a container whose first process a signal has ended.
type killedContainer struct {
	pod  *v1.Pod
	name string
	id   string
	by   string // label value
}

// newlyKilled returns the containers that have been killed since the last call. The first call returns none, because an earlier agent may have
// drained them.
func (t *terminations) newlyKilled(pods []*v1.Pod) (killed []killedContainer) {
	before := t.seen
	t.seen = map[string]bool{}
	for _, p := range pods {
		for _, status := range slices.Concat(p.Status.ContainerStatuses, p.Status.InitContainerStatuses) {
			for _, state := range []v1.ContainerState{status.State, status.LastTerminationState} {
				if state.Terminated == nil {
					continue
				}
				_, id, _ := strings.Cut(state.Terminated.ContainerID, "://")
				by := killer(state.Terminated)
				if by != "" && before != nil && !before[id] && !t.seen[id] {
					killed = append(killed, killedContainer{p, status.Name, id, by})
				}
				t.seen[id] = true
			}
		}
	}
	return killed
}

// killer returns what has ended a container, as a label value; empty if its first process has exited by itself. Runtimes report signals as exit codes
// above 128.
func killer(s *v1.ContainerStateTerminated) string {
	switch {
	case s.Reason == "OOMKilled":
		return "lack of memory"
	case s.ExitCode > 128:
		return fmt.Sprint("signal ", s.ExitCode-128)
	}
	return ""
}

// reportKilled counts a container that was killed before its work on an MPS slice was ended, and writes an event on its pod.
func (t *terminations) reportKilled(k killedContainer) {
	i := slices.IndexFunc(t.grants.ofPod(k.pod.UID), func(g grant.Grant) bool { return g.Container == k.name && t.slices.hasDaemon(g.VGPUs[0].Slice) })
	if i < 0 || t.drained(cgroup.Container{PodUID: string(k.pod.UID), ID: k.id}) {
		return
	}
	t.metrics.killed.WithLabelValues(k.by).Inc()
	text := fmt.Sprintf("container %s was ended by %s, and its CUDA work was not ended before: if a kernel ran, others on the GPU may have failed", k.name, k.by)
	t.Log.Warn("a container was killed before its CUDA work was ended", "pod", k.pod.Namespace+"/"+k.pod.Name, "container", k.name, "by", k.by)
	t.Cluster.Warn(k.pod, eventKilled, text)
}
