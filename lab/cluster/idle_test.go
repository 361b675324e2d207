package cluster

import (
	"math"
	"testing"
)

// One node with two devices, of which the first pods leave something that the last one, which is refused, cannot use for one reason.
func TestIdleReasons(t *testing.T) {
	memory := pod(1, 1, 1000)
	memory.RAM = 1 << 40
	for _, c := range []struct {
		name string
		node Node
		pods []Pod
		want Idle
	}{
		{"nobody was refused", node(8, 2), []Pod{pod(1, 1, 1000)}, Idle{Unwanted: 50}},
		{"fragments", node(8, 2), []Pod{pod(1, 1, 700), pod(1, 1, 700), pod(1, 1, 400)}, Idle{Fragment: 30}},
		{"too few devices", node(8, 2), []Pod{pod(1, 1, 1000), pod(1, 2, 1000)}, Idle{Fragment: 50}},
		{"model", node(8, 2), []Pod{pod(1, 1, 1000), pod(1, 1, 1000, "A10")}, Idle{Model: 50}},
		{"CPU", node(8, 2), []Pod{pod(7, 1, 1000), pod(2, 1, 1000)}, Idle{CPU: 50}},
		{"memory", node(8, 2), []Pod{pod(1, 1, 1000), memory}, Idle{Memory: 50}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := simulation(t, Config{Nodes: []Node{c.node}, Pods: c.pods, Policy: "firstfit"})
			var list []*shape
			s.shapes, list = shapesOf(c.pods)
			for _, next := range list { // in this order: Run would shuffle them
				s.decide(next)
			}
			got := s.idle()
			if math.Abs(got.Total()-c.want.Total()) > 1e-9 || got != c.want {
				t.Errorf("%+v, want %+v", got, c.want)
			}
		})
	}
}

// The account is complete: what is not idle is allocated.
func TestIdleAddsUp(t *testing.T) {
	for _, policy := range Policies() {
		if r := run(t, small(policy, 3)); math.Abs(r.AllocatedEnd+r.Idle.Total()-100) > 1e-9 {
			t.Errorf("%s: %.3f %% allocated and %+v idle", policy, r.AllocatedEnd, r.Idle)
		}
	}
}
