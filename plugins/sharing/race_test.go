package sharing

import (
	"fmt"
	"sync"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
)

// One goroutine schedules, as in the scheduler: PreFilter, then Filter and Score over all nodes in parallel, then Reserve.
// Binding, the failure of every third bind, the queue's signing and deletions go on meanwhile.
func TestSchedulingAndBindingAtOnce(t *testing.T) {
	h := newHandle()
	for i := range 8 {
		h.snapshot = append(h.snapshot, newNodeInfo(gpuNode(t, fmt.Sprint("n", i), 4)))
	}
	h.client.PrependReactor("create", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
		return true, a.(clienttesting.CreateAction).GetObject(), nil
	})
	p := newPlugin(t, h, 0)
	var behind sync.WaitGroup
	for i := range 200 {
		pod := gpuPod(fmt.Sprint("p", i), int64(10+i%5*10), int64(20+i%7*10))
		h.knows(pod)
		behind.Go(func() { p.SignPod(t.Context(), pod) })
		state, node := scheduleInParallel(t, p, pod)
		if node == "" {
			continue
		}
		if status := p.Reserve(t.Context(), state, pod, node); !status.IsSuccess() {
			t.Fatal(status)
		}
		behind.Go(func() {
			if status := p.Bind(t.Context(), state, pod, node); !status.IsSuccess() {
				t.Error(status)
			}
			switch i % 3 {
			case 0:
				p.Unreserve(t.Context(), state, pod, node)
			case 1:
				p.ledger.Forget(pod.UID)
				p.podInfos.forget(pod.UID)
			}
		})
	}
	behind.Wait()
	for i := range 200 {
		p.ledger.Forget(gpuPod(fmt.Sprint("p", i), 10, 10).UID)
	}
	if p.ledger.Len() != 0 {
		t.Errorf("%d assumed of nobody", p.ledger.Len())
	}
}

// scheduleInParallel returns a node that fits, or none.
func scheduleInParallel(t *testing.T, p *Plugin, pod *v1.Pod) (*fakeState, string) {
	state, _ := prefilter(t, p, pod)
	var workers sync.WaitGroup
	for _, info := range p.handle.(*fakeHandle).snapshot {
		workers.Go(func() {
			dryRun := info.(*fakeNode).with(gpuPod("nominee", 100, 100))
			p.Filter(t.Context(), state.Clone(), pod, dryRun)
			if p.Filter(t.Context(), state, pod, info).IsSuccess() {
				p.Score(t.Context(), state, pod, info)
			}
		})
	}
	workers.Wait()
	c, _ := p.cycleOf(state)
	for _, info := range p.handle.(*fakeHandle).snapshot {
		// Snapshot and ledger together, since this test never updates the snapshot.
		if _, _, err := p.planPod(state, c, pod, info); err == nil {
			return state, info.Node().Name
		}
	}
	return state, ""
}
