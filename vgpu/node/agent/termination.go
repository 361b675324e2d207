package agent

import (
	"context"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/node/grant"
)

// The kubelet kills a pod when its termination grace period is over. Shortly before that, the agent makes the MPS daemon end the CUDA work
// of the processes that are left: a client that is killed while it has work may crash the MPS server, and with it the other clients.
const (
	terminationLead   = time.Second
	terminationPeriod = 250 * time.Millisecond
)

// terminations ends the CUDA work of pods shortly before their termination grace period is over.
type terminations struct {
	*Options
	slices *sliceRuntime
	grants *grantStore
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
		pods := t.terminatingPods(ctx)
		if len(pods) == 0 {
			clear(done)
		}
		for _, g := range t.expiring(pods, done, time.Now()) {
			ends.Go(func() { t.endCUDAWork(ctx, g) }) // concurrent, as a hung daemon must not delay those of other slices
		}
	}
}

// terminatingPods returns the pods that are being deleted and have not ended; none if there is no grant or the kubelet does not answer.
func (t *terminations) terminatingPods(ctx context.Context) []*v1.Pod {
	ctx, cancel := context.WithTimeout(ctx, kubeletTimeout)
	defer cancel()
	if !t.grants.hasAny() {
		return nil
	}
	pods, err := t.Pods.List(ctx)
	if err != nil {
		return nil
	}
	return slices.DeleteFunc(pods, func(p *v1.Pod) bool { return p.DeletionTimestamp == nil || kube.Ended(p) })
}

// expiring returns the grants of those pods whose grace period is nearly over. It skips the pods that are in done, and adds the others to
// it.
func (t *terminations) expiring(pods []*v1.Pod, done map[types.UID]bool, now time.Time) (expiring []grant.Grant) {
	for _, p := range pods {
		if done[p.UID] || now.Before(p.DeletionTimestamp.Add(-terminationLead)) { // the timestamp is the end of the grace period
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
	if err != nil {
		t.Log.Warn("failed to end the CUDA work of a terminating pod", "container", g.String(), "error", err)
	}
}
