package cluster_test

import (
	"testing"
	"time"
)

// The number of replacements, the interval between arriving pods meanwhile, and the number of all these pods that the kubelet may fail.
const (
	replacements = 2
	everyArrival = 250 * time.Millisecond
	mostFailed   = 1
)

// TestAgentReplaced stops the agent gracefully (SIGTERM) while pods compute and others are created, and starts the next agent. Running
// pods must not be disturbed, and new pods must wait for the next agent without being failed by the kubelet.
func TestAgentReplaced(t *testing.T) {
	a, node := startLoaded(t)
	all := 0
	for range replacements {
		ctx := testContext(t)
		before := a.load(ctx, t, node)
		began, back := time.Now(), make(chan error, 1)
		go func() {
			a.of[node.Name].Stop()
			back <- a.of[node.Name].Restart(ctx)
		}()
		for n := range arriving {
			a.arrive(ctx, t, node, n, n+1)
			time.Sleep(everyArrival) // the rate of arrivals
		}
		if err := <-back; err != nil {
			t.Fatal(err)
		}
		failed := a.settle(ctx, t, node, before)
		t.Logf("all run after %v; the kubelet failed %d of %d pods that came", time.Since(began), failed, arriving)
		all += failed
		a.clear(ctx, t)
	}
	if all > mostFailed {
		t.Errorf("the kubelet failed %d of %d pods that came while the agent was replaced", all, replacements*arriving)
	}
}
