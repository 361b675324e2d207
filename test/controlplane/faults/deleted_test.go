package faults

import (
	"testing"
	"time"

	"github.com/gshare-dev/gshare/test/controlplane"
)

// holdFirst runs a scheduler whose first bind request for the pod is held until open is called.
func (l *lab) holdFirst(pod string) (p *proxy, open func()) {
	l.t.Helper()
	gate := make(chan struct{})
	p = l.startProxy(func(name string, attempt int) fate {
		if name == pod && attempt == 1 {
			return held(gate)
		}
		return forward
	})
	l.ownScheduler("held", controlplane.SchedulerOptions{Server: p.url})
	return p, func() { close(gate) }
}

// TestPodDeletedWhileItIsBound deletes a pod between Reserve and the API server's response. Its share is given to other pods
// twice, which shows that nothing of it remains reserved.
func TestPodDeletedWhileItIsBound(t *testing.T) {
	l := newLab(t)
	p, open := l.holdFirst("gone")
	l.addNodes(node("n", 1))
	l.addPods(gpuPod("gone", 100))
	l.must(p.waitAttempts(l.ctx, "gone", 1))
	l.addPods(gpuPod("next", 100))
	l.waitRefused("next")
	l.deletePod("gone")
	began := time.Now()
	open()
	l.waitBound("next")
	t.Logf("the next pod was bound %v after the request was answered", time.Since(began))
	l.wantSound()

	l.deletePod("next")
	quarters := gpuPods("quarter", 4, 25)
	l.addPods(quarters...)
	l.waitBound(names(quarters)...)
	if n := p.carriedOut("gone"); n != 0 {
		t.Errorf("the deleted pod was bound %d times", n)
	}
	l.wantFull()
}

// TestPodReplacedWhileItIsBound creates another pod of the same name meanwhile: the request for the old pod must not bind the
// new one.
func TestPodReplacedWhileItIsBound(t *testing.T) {
	l := newLab(t)
	p, open := l.holdFirst("again")
	l.addNodes(node("n", 1))
	l.addPods(gpuPod("again", 100))
	l.must(p.waitAttempts(l.ctx, "again", 1))
	l.deletePod("again")
	l.addPods(gpuPod("again", 50), gpuPod("other", 50))
	open()
	l.waitBound("again", "other")
	l.wantFull()
}
