package rebalance

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gshare-dev/gshare/vgpu/packing"
	"github.com/gshare-dev/gshare/vgpu/share"
)

const gib = share.Bytes(1 << 30)

// world recounts a cluster without package packing. All its shares have the whole time, so that they fit if their SMs do.
type world struct {
	c     *Cluster
	spots [][]spot
}

func newWorld(c *Cluster) *world {
	w := &world{c: c, spots: make([][]spot, len(c.Pods))}
	for i, p := range c.Pods {
		w.spots[i] = []spot{{p.Node, p.Plan}}
	}
	return w
}

// check returns what is wrong with the shares on the slices, and with CPU and memory.
func (w *world) check() error {
	type sum struct {
		sm, limits share.PerMille
		memory     share.Bytes
		n          int
	}
	type key struct{ node, slice int }
	sums, first := map[key]sum{}, map[key]int{}
	cpu, ram := map[int]packing.MilliCPU{}, map[int]share.Bytes{}
	for p, spots := range w.spots {
		for _, at := range spots {
			cpu[at.node] += w.c.Pods[p].CPU
			ram[at.node] += w.c.Pods[p].RAM
			for c, picks := range at.plan {
				sh, devices := w.c.Pods[p].Request.Containers[c].Share, map[string]bool{}
				if len(picks) != w.c.Pods[p].Request.Containers[c].VGPUs {
					return fmt.Errorf("pod %d has %d vGPUs", p, len(picks))
				}
				for _, pick := range picks {
					k := key{at.node, pick.Slice}
					one := sums[k]
					one.sm, one.limits, one.memory, one.n = one.sm+sh.SMRequest, one.limits+sh.SMLimit, one.memory+sh.Memory, one.n+1
					sums[k] = one
					if q, ok := first[k]; !ok {
						first[k] = p
					} else if w.c.Pods[q].Tenant != w.c.Pods[p].Tenant || classOf(&w.c.Pods[q]) != classOf(&w.c.Pods[p]) || sh.IsWhole() {
						return fmt.Errorf("pods %d and %d on slice %d of node %d", q, p, pick.Slice, at.node)
					}
					slice := w.c.Nodes[at.node].Slices[pick.Slice]
					if pick.Class != classOf(&w.c.Pods[p]) || devices[slice.Device] {
						return fmt.Errorf("pod %d is %q, or twice on %s", p, pick.Class, slice.Device)
					}
					devices[slice.Device] = true
				}
			}
		}
	}
	for k, one := range sums {
		slice := w.c.Nodes[k.node].Slices[k.slice]
		if one.sm > 1000 || one.limits > 1500 || one.memory > slice.Memory || one.n > slice.MaxShares || !slice.Healthy {
			return fmt.Errorf("slice %d of node %d: %+v", k.slice, k.node, one)
		}
	}
	for i, n := range w.c.Nodes {
		if cpu[i] > n.CPU || ram[i] > n.RAM {
			return fmt.Errorf("node %d: %d thousandths of a CPU and %d bytes", i, cpu[i], ram[i])
		}
	}
	return nil
}

func classOf(p *Pod) share.Isolation {
	switch sh := p.Request.Containers[0].Share; {
	case sh.SMLimit > sh.SMRequest:
		return share.Elastic
	case sh.IsWhole():
		return share.Exclusive
	}
	return share.MPS
}

// used returns the devices that hold a share.
func (w *world) used() map[Device]bool {
	out := map[Device]bool{}
	for _, spots := range w.spots {
		for _, at := range spots {
			for _, picks := range at.plan {
				for _, pick := range picks {
					out[Device{at.node, w.c.Nodes[at.node].Slices[pick.Slice].Device}] = true
				}
			}
		}
	}
	return out
}

// replay makes the moves of a plan one by one, and returns the first that is not possible when it is made, or not allowed.
func (w *world) replay(plan Plan, l Limits) error {
	budgets, moved := slices.Clone(w.c.Budgets), map[int]bool{}
	if len(plan.Moves) > l.Moves {
		return fmt.Errorf("%d moves", len(plan.Moves))
	}
	for _, m := range plan.Moves {
		p := &w.c.Pods[m.Pod]
		if !p.Movable || moved[m.Pod] || m.First != p.Twice || m.From != p.Node || w.c.Eligible != nil && !w.c.Eligible(p, m.To) {
			return fmt.Errorf("%+v is not allowed", m)
		}
		moved[m.Pod] = true
		for _, b := range p.Budgets {
			if budgets[b]--; budgets[b] < 0 {
				return fmt.Errorf("%+v breaks budget %d", m, b)
			}
		}
		to := spot{m.To, m.Plan}
		if m.First {
			w.spots[m.Pod] = append(w.spots[m.Pod], to)
			if err := w.check(); err != nil {
				return fmt.Errorf("%+v, both: %w", m, err)
			}
		}
		w.spots[m.Pod] = []spot{to}
		if err := w.check(); err != nil {
			return fmt.Errorf("%+v: %w", m, err)
		}
	}
	return nil
}

// randomCluster has up to three nodes, and pods that random choices have left anywhere.
func randomCluster(r *rand.Rand) *Cluster {
	c := &Cluster{Packer: packing.Packer{Rules: packing.NewRules(packing.Slots), Ranker: packing.Balance{Demand: &packing.Demand{}}}}
	for range 3 {
		c.Budgets = append(c.Budgets, r.IntN(4))
	}
	for i := range 1 + r.IntN(3) {
		c.Nodes = append(c.Nodes, testNode(fmt.Sprint("n", i), 1+r.IntN(3)))
		c.Nodes[i].CPU = packing.MilliCPU(4000 + r.IntN(8000))
	}
	if r.IntN(3) == 0 {
		c.Eligible = func(p *Pod, node int) bool { return (len(p.Name)+node)%3 > 0 }
	}
	for range 2 + r.IntN(12) {
		p := randomPod(r)
		p.Node = r.IntN(len(c.Nodes))
		p.Plan = packing.Plan{nil}
		for _, slice := range r.Perm(len(c.Nodes[p.Node].Slices)) {
			if len(p.Plan[0]) < p.Request.Containers[0].VGPUs {
				p.Plan[0] = append(p.Plan[0], packing.Pick{Slice: slice, Class: classOf(&p)})
			}
		}
		c.Pods = append(c.Pods, p)
		if newWorld(c).check() != nil {
			c.Pods = c.Pods[:len(c.Pods)-1]
		}
	}
	return c
}

func testNode(name string, gpus int) *packing.Node {
	var on []packing.Slice
	for i := range gpus {
		id := fmt.Sprint(name, "/", i)
		on = append(on, packing.Slice{
			ID: packing.SliceID(id), Device: id, Model: "A100", SMs: 100, Memory: 80 * gib, Healthy: true, MaxShares: 4,
			Classes: []share.Isolation{share.Exclusive, share.MPS, share.Elastic},
		})
	}
	return packing.NewNode(name, on, 64000, 512*gib)
}

func testPod(sm share.PerMille) Pod {
	p := Pod{Movable: true, Name: "ml/p"}
	p.Tenant = "ml"
	sh := share.Share{SMRequest: sm, SMLimit: sm, QuotaRequest: share.Whole, QuotaLimit: share.Whole, Memory: gib}
	p.Request.Containers = []share.Container{{Name: "main", VGPUs: 1, Share: sh}}
	p.Request.Priority = share.BestEffort
	return p
}

func randomPod(r *rand.Rand) Pod {
	p := testPod([]share.PerMille{100, 250, 300, 400, 500, 600, 1000}[r.IntN(7)])
	sh := &p.Request.Containers[0].Share
	switch {
	case sh.IsWhole():
		p.Request.Containers[0].VGPUs = 1 + r.IntN(2)
	case r.IntN(4) == 0:
		sh.SMLimit += 200
	}
	sh.Memory = share.Bytes(1+r.IntN(30)) * gib
	if r.IntN(6) == 0 {
		p.Tenant = "web"
	}
	if r.IntN(2) == 0 {
		p.Request.Priority = share.SLO
	}
	p.CPU = packing.MilliCPU(r.IntN(1500))
	p.Name += fmt.Sprint("aaa"[:r.IntN(4)])
	p.Movable, p.Twice = r.IntN(5) > 0, r.IntN(3) == 0
	for b := range 3 {
		if r.IntN(4) == 0 {
			p.Budgets = append(p.Budgets, b)
		}
	}
	return p
}

// TestReplayRefuses: the recount finds what is wrong with a plan.
func TestReplayRefuses(t *testing.T) {
	c := &Cluster{Nodes: []*packing.Node{testNode("n", 3)}, Budgets: []int{1}}
	for slice, sm := range []share.PerMille{600, 300, 300} {
		p := testPod(sm)
		p.Plan = packing.Plan{{{Slice: slice, Class: share.MPS}}}
		p.Budgets, p.Movable = []int{0}, slice > 0
		c.Pods = append(c.Pods, p)
	}
	to := func(slice int) packing.Plan { return packing.Plan{{{Slice: slice, Class: share.MPS}}} }
	for name, tc := range map[string]struct {
		moves []Move
		good  bool
	}{
		"allowed":     {[]Move{{Pod: 1, Plan: to(0)}}, true},
		"not movable": {[]Move{{Pod: 0, Plan: to(1)}}, false},
		"twice":       {[]Move{{Pod: 1, Plan: to(0)}, {Pod: 1, Plan: to(1)}}, false},
		"full":        {[]Move{{Pod: 1, Plan: packing.Plan{{{Slice: 0, Class: share.Elastic}}}}}, false},
		"budget":      {[]Move{{Pod: 1, Plan: to(0)}, {Pod: 2, Plan: to(1)}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			if err := newWorld(c).replay(Plan{Moves: tc.moves}, Limits{Moves: 9}); (err == nil) != tc.good {
				t.Errorf("%v", err)
			}
		})
	}
}
