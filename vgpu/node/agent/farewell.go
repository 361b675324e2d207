package agent

import (
	"context"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gshare-dev/gshare/vgpu/node/grant"
	"github.com/gshare-dev/gshare/vgpu/node/kubelet"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// The kubelet kills a pod when its grace is over. A client of MPS that is killed at work may take the server and so its
// neighbours with it: what is left of it then has its CUDA work ended by the daemon a moment before.
const (
	farewell     = time.Second
	farewellLook = 250 * time.Millisecond
)

// farewellLoop sees to pods that are about to be killed.
func (a *Agent) farewellLoop(ctx context.Context) {
	if !a.MPS.Enabled() {
		return
	}
	var ends sync.WaitGroup
	defer ends.Wait()
	done := map[types.UID]bool{}
	for ; ctx.Err() == nil; pause(ctx, farewellLook) {
		pods := a.leaving(ctx)
		if len(pods) == 0 {
			clear(done)
		}
		for _, g := range a.due(pods, done, time.Now()) {
			ends.Go(func() { a.endWork(ctx, g) }) // a daemon that hangs does not hold up those of other slices
		}
	}
}

// leaving are the pods with shares that are being deleted. Without an answer of the kubelet nothing is known.
func (a *Agent) leaving(ctx context.Context) []*v1.Pod {
	ctx, cancel := context.WithTimeout(ctx, recordLimit)
	defer cancel()
	if !a.sharesAny() {
		return nil
	}
	pods, err := a.Pods.List(ctx)
	if err != nil {
		return nil
	}
	return slices.DeleteFunc(pods, func(p *v1.Pod) bool { return p.DeletionTimestamp == nil || kubelet.Ended(p) })
}

func (a *Agent) sharesAny() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.book.All()) > 0
}

// due are the shares of the pods whose grace is nearly over, each once.
func (a *Agent) due(pods []*v1.Pod, done map[types.UID]bool, now time.Time) (shared []grant.Grant) {
	for _, p := range pods {
		if done[p.UID] || now.Before(p.DeletionTimestamp.Add(-farewell)) { // the deletion is dated to the end of its grace
			continue
		}
		done[p.UID] = true
		shared = append(shared, a.grantsOf(p.UID)...)
	}
	return shared
}

func (a *Agent) grantsOf(uid types.UID) (shared []grant.Grant) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, g := range a.book.All() {
		if g.UID == uid && g.Class() != share.Exclusive {
			shared = append(shared, g)
		}
	}
	return shared
}

func (a *Agent) endWork(ctx context.Context, g grant.Grant) {
	err := a.mps.TerminateClients(ctx, a.uuid(g.VGPUs[0].Slice), func(pid int) bool {
		c, err := a.ContainerOf(pid)
		return err == nil && c.PodUID == string(g.UID)
	})
	if err != nil {
		a.Log.Warn("end the work of a pod before it is killed", "container", g.String(), "err", err)
	}
}
