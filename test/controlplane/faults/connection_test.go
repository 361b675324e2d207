package faults

import (
	"net/http"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gshare-dev/gshare/test/controlplane"
)

// slowly delays bind requests, so that many are in flight when their connections are cut.
func slowly(pod string, _ int) fate {
	delay := time.Duration(50+chanceOf(pod).IntN(400)) * time.Millisecond
	return func(p *proxy, b *bind) {
		select {
		case <-time.After(delay):
			forward(p, b)
		case <-b.r.Context().Done():
		}
	}
}

// TestRefusalAfterTimeout lets a first bind request time out and be carried out much later, and has the second one refused.
// The share must not go to another pod while the first request may still be carried out.
func TestRefusalAfterTimeout(t *testing.T) {
	l := newLab(t)
	release := make(chan struct{})
	p := l.startProxy(func(pod string, attempt int) fate {
		switch {
		case pod != "slow" || attempt > 2:
			return forward
		case attempt == 1:
			return late(func() <-chan struct{} { return release })
		}
		return answer(http.StatusForbidden, metav1.StatusReasonForbidden)
	})
	l.addNodes(node("n", 1))
	l.ownScheduler("refused", controlplane.SchedulerOptions{Server: p.url})
	l.addPods(gpuPod("slow", 100))
	l.must(p.waitAttempts(l.ctx, "slow", 2))
	l.addPods(gpuPod("other", 100))
	other := l.board.waitAtMost(l.ctx, 5*time.Second, func(p pods) bool {
		return p.bound() > 0
	})
	close(release)
	p.late.Wait()
	t.Logf("a pod was bound before the late request arrived: %t", other)
	l.waitSettled(2)
	if bound := l.wantSound(); bound != 1 {
		t.Errorf("%d pods are bound where one has room", bound)
	}
}

// TestConnectionsAreCutInMidBurst repeatedly cuts all connections of the scheduler, including watches.
func TestConnectionsAreCutInMidBurst(t *testing.T) {
	l := newLab(t)
	p := l.startProxy(slowly)
	machines, pods := faultyCluster()
	l.addNodes(machines...)
	l.ownScheduler("cut", controlplane.SchedulerOptions{Server: p.url})
	l.addInBackground(pods)
	for _, bound := range []int{10, 50, 90, 130} {
		l.waitCount(bound)
		p.server.CloseClientConnections()
		t.Logf("connections cut with %d of %d pods bound", l.wantSound(), len(pods))
	}
	l.waitBound(names(pods)...)
	l.wantFull()
}
