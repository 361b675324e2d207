package cluster

import (
	"reflect"
	"testing"

	"github.com/gshare-dev/gshare/vgpu/packing"
)

// TestChurn: on a small part of openb, the moves free GPUs, each has room when it is made, and a fresh packing frees hardly more.
func TestChurn(t *testing.T) {
	nodes, pods := openb(t, "default", 1)
	c := ChurnConfig{Nodes: nodes[:60], Pods: pods, Order: RandomOrder, Load: 0.9, Turnover: 1, Left: 0.5, Seed: 1}
	r, err := Churn(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", r)
	freed := r.Churned - r.Rebalanced
	if r.Impossible != 0 || r.Moves == 0 || r.Moves > 10*freed || float64(r.Rebalanced) > 1.05*float64(r.Fresh) {
		t.Errorf("%+v", r)
	}
	if again, err := Churn(t.Context(), c); err != nil || !reflect.DeepEqual(again, r) {
		t.Errorf("%v: then %+v", err, again)
	}
}

// TestChurnCounts: two halves on GPUs of their own come together by one move.
func TestChurnCounts(t *testing.T) {
	half := Pod{CPU: 1000, RAM: 1, GPUs: 1, Milli: 500}
	node := Node{Name: "n", CPU: 64000, RAM: 1 << 40, GPUs: 2, Model: "A100"}
	h, err := newChurn(ChurnConfig{Nodes: []Node{node}, Pods: []Pod{half}, Order: FileOrder, Load: 1, Left: 1, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	for gpu := range 2 {
		p := &runningPod{h.shapes[0], 0, []int{gpu}, packing.Plan{{{Slice: gpu, Class: "mps"}}}}
		h.pods = append(h.pods, p)
		h.put(p)
	}
	if h.inUse() != 2 || h.packAnew() != 1 {
		t.Fatalf("%d GPUs in use, %d when packed anew", h.inUse(), h.packAnew())
	}
	plan, pods := h.rebalance()
	if len(plan.Moves) != 1 {
		t.Fatalf("%+v", plan)
	}
	wrong := plan
	wrong.Moves = append(wrong.Moves[:1:1], wrong.Moves[0], wrong.Moves[0])
	wrong.Moves[1].Plan = packing.Plan{{{Slice: 0, Class: "mps"}, {Slice: 1, Class: "mps"}}}
	if n := h.replay(wrong, pods); n == 0 {
		t.Error("a pod on more GPUs than it requests counts as possible")
	}
}

func TestChurnRefuses(t *testing.T) {
	nodes, pods := openb(t, "default", 1)
	for name, change := range map[string]func(c *ChurnConfig){
		"no load":         func(c *ChurnConfig) { c.Load = 0 },
		"too much load":   func(c *ChurnConfig) { c.Load = 1.1 },
		"nothing left":    func(c *ChurnConfig) { c.Left = 0 },
		"turns backwards": func(c *ChurnConfig) { c.Turnover = -1 },
		"unknown order":   func(c *ChurnConfig) { c.Order = "x" },
	} {
		t.Run(name, func(t *testing.T) {
			c := ChurnConfig{Nodes: nodes[:2], Pods: pods, Order: FileOrder, Load: 0.5, Left: 1}
			change(&c)
			if _, err := Churn(t.Context(), c); err == nil {
				t.Error("no error")
			}
		})
	}
}
