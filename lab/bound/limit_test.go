package bound

import (
	"math/rand/v2"
	"testing"

	"github.com/gshare-dev/gshare/lab/cluster"
	"github.com/gshare-dev/gshare/vgpu/packing"
	"github.com/gshare-dev/gshare/vgpu/share"
)

func node(cores packing.MilliCPU, gib share.Bytes, gpus int, model string) cluster.Node {
	return cluster.Node{CPU: 1000 * cores, RAM: gib << 30, GPUs: gpus, Model: model}
}

func pod(cores packing.MilliCPU, gib share.Bytes, gpus int, milli packing.MilliGPU, models ...string) cluster.Pod {
	return cluster.Pod{CPU: 1000 * cores, RAM: gib << 30, GPUs: gpus, Milli: milli, Models: models}
}

func repeat(n int, p cluster.Pod) (out []cluster.Pod) {
	for range n {
		out = append(out, p)
	}
	return out
}

// Each case has one reason for which not all GPUs can be allocated.
func TestLimitByHand(t *testing.T) {
	eight := []cluster.Node{node(96, 384, 8, "G2")}
	for _, c := range []struct {
		name  string
		nodes []cluster.Node
		pods  []cluster.Pod
		want  int64
	}{
		{"nothing asks for more", eight, repeat(3, pod(1, 1, 1, 1000)), 3000},
		{"devices", eight, repeat(9, pod(1, 1, 1, 1000)), 8000},
		{"sizes that do not pair", eight, repeat(12, pod(1, 1, 1, 600)), 4800},
		{"three to a device", eight, repeat(40, pod(1, 1, 1, 300)), 7200},
		{"CPU", eight, repeat(8, pod(24, 1, 1, 1000)), 4000},
		{"memory", eight, repeat(8, pod(1, 96, 1, 1000)), 4000},
		{"model", eight, repeat(8, pod(1, 1, 1, 1000, "T4")), 0},
		{"more devices than a node has", eight, repeat(1, pod(1, 1, 16, 1000)), 0},
		{"a node is too small", append(eight, node(4, 8, 2, "T4")), repeat(10, pod(8, 8, 1, 1000)), 8000},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := NewProblem(c.nodes, c.pods).Solve().Milli; got != c.want {
				t.Errorf("limit of %d, want %d", got, c.want)
			}
		})
	}
}

// Pods without GPUs that must be accepted take the CPU of others.
func TestLimitWithPodsThatMustRun(t *testing.T) {
	nodes := []cluster.Node{node(16, 64, 2, "G2")}
	pods := append(repeat(2, pod(8, 1, 1, 1000)), pod(8, 1, 0, 0))
	p := NewProblem(nodes, pods)
	if got := p.Solve().Milli; got != 2000 {
		t.Errorf("limit of %d where the pod without GPUs may wait, want 2000", got)
	}
	if got := mustRun(p).Solve().Milli; got != 1000 {
		t.Errorf("limit of %d where it must run, want 1000", got)
	}
}

// mustRun marks the pods without GPUs.
func mustRun(p *Problem) *Problem {
	for i := range p.shapes {
		p.shapes[i].must = p.shapes[i].gpus == 0
	}
	return p
}

// tiny returns a random cluster and pods that exhaustive search can place.
func tiny(r *rand.Rand) ([]cluster.Node, []cluster.Pod) {
	models := []string{"G2", "T4"}
	var nodes []cluster.Node
	for range 1 + r.IntN(3) {
		nodes = append(nodes, node(packing.MilliCPU(2+r.IntN(8)), share.Bytes(2+r.IntN(8)), 1+r.IntN(2), models[r.IntN(2)]))
	}
	var pods []cluster.Pod
	for range 3 + r.IntN(4) {
		p := pod(packing.MilliCPU(r.IntN(5)), share.Bytes(r.IntN(5)), 1, packing.MilliGPU(100*(1+r.IntN(10))))
		switch r.IntN(5) {
		case 0:
			p.GPUs, p.Milli = 2, 1000
		case 1:
			p.GPUs, p.Milli = 0, 0
		case 2:
			p.Models = models[:1]
		}
		pods = append(pods, p)
	}
	return nodes, pods
}

// search places pods in every way and keeps the most that was allocated, in all and with every pod placed for which must is true.
type search struct {
	nodes             []cluster.Node
	free              [][]packing.MilliGPU
	pods              []cluster.Pod
	must              func(*cluster.Pod) bool
	accepts           bool  // a pod that fits somewhere is placed
	best, bestWithAll int64 // bestWithAll is negative if nothing holds all that must run
}

func newSearch(nodes []cluster.Node, pods []cluster.Pod) *search {
	s := &search{nodes: append([]cluster.Node{}, nodes...), pods: pods, must: func(*cluster.Pod) bool { return false }, bestWithAll: -1}
	for _, n := range nodes {
		row := make([]packing.MilliGPU, n.GPUs)
		for g := range row {
			row[g] = packing.WholeGPU
		}
		s.free = append(s.free, row)
	}
	return s
}

func exhaust(nodes []cluster.Node, pods []cluster.Pod, must func(*cluster.Pod) bool) (best, withAll int64) {
	s := newSearch(nodes, pods)
	s.must = must
	s.place(0, 0, true)
	return s.best, s.bestWithAll
}

func (s *search) place(i int, used int64, all bool) {
	if i == len(s.pods) {
		s.best = max(s.best, used)
		if all {
			s.bestWithAll = max(s.bestWithAll, used)
		}
		return
	}
	p := &s.pods[i]
	if !s.accepts || !s.fitsSomewhere(p) {
		s.place(i+1, used, all && !s.must(p))
	}
	for n := range s.nodes {
		node := &s.nodes[n]
		if !allows(node, p) {
			continue
		}
		node.CPU, node.RAM = node.CPU-p.CPU, node.RAM-p.RAM
		s.devices(i, n, 0, p.GPUs, used, all)
		node.CPU, node.RAM = node.CPU+p.CPU, node.RAM+p.RAM
	}
}

// allows reports whether the node has the CPU, the memory and the model that the pod asks for.
func allows(n *cluster.Node, p *cluster.Pod) bool {
	return p.CPU <= n.CPU && p.RAM <= n.RAM && (p.GPUs == 0 || len(p.Models) == 0 || p.Models[0] == n.Model)
}

func (s *search) fitsSomewhere(p *cluster.Pod) bool {
	for n := range s.nodes {
		enough := 0
		for _, free := range s.free[n] {
			if free >= p.Milli {
				enough++
			}
		}
		if allows(&s.nodes[n], p) && enough >= p.GPUs {
			return true
		}
	}
	return false
}

// devices takes the pod's remaining devices from the node's, beginning at the given one, in every way.
func (s *search) devices(i, n, from, left int, used int64, all bool) {
	p := &s.pods[i]
	if left == 0 {
		s.place(i+1, used+int64(p.GPUs)*int64(p.Milli), all)
		return
	}
	for g := from; g < len(s.free[n]); g++ {
		if s.free[n][g] >= p.Milli {
			s.free[n][g] -= p.Milli
			s.devices(i, n, g+1, left-1, used, all)
			s.free[n][g] += p.Milli
		}
	}
}

// No placement of a small cluster is above the limit, neither by the prices that Solve finds nor by random ones.
func TestLimitHoldsAgainstEveryPlacement(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 7))
	reached, below := 0, 0
	for i := range 200 {
		nodes, pods := tiny(r)
		best, withAll := exhaust(nodes, pods, func(p *cluster.Pod) bool { return p.GPUs == 0 })
		p := NewProblem(nodes, pods)
		limit := p.Solve().Milli
		if limit < best {
			t.Fatalf("%d: limit of %d, but %d can be allocated: %+v %+v", i, limit, best, nodes, pods)
		}
		mustRun(p)
		if got := p.Solve().Milli; withAll >= 0 && got < withAll {
			t.Fatalf("%d: limit of %d, but %d can be allocated with all pods without GPUs: %+v %+v", i, got, withAll, nodes, pods)
		}
		if got := p.Limit(randomPrices(p, r)); withAll >= 0 && got < withAll {
			t.Fatalf("%d: random prices: limit of %d, but %d can be allocated: %+v %+v", i, got, withAll, nodes, pods)
		}
		if limit == best {
			reached++
		}
		if limit < p.capacity {
			below++
		}
	}
	if reached < 100 || below < 50 {
		t.Errorf("the limit is what can be allocated in %d of 200 clusters and below their GPUs in %d: it says little", reached, below)
	}
}

func randomPrices(p *Problem, r *rand.Rand) *Prices {
	out := &Prices{}
	for range p.types {
		out.cpu = append(out.cpu, int64(r.IntN(unit)))
		out.memory = append(out.memory, int64(r.IntN(unit)))
		row := make([]int64, len(p.sizes))
		for i := range row {
			row[i] = int64(r.IntN(1000 * unit))
		}
		out.slot = append(out.slot, row)
	}
	return out
}

// Prices that are too low for what they buy must not lower the limit: without this the tests above would accept a Limit that forgets the
// surplus of pods.
func TestLimitOfFreeGoods(t *testing.T) {
	p := NewProblem([]cluster.Node{node(8, 8, 2, "G2")}, repeat(5, pod(1, 1, 1, 300)))
	free := &Prices{cpu: []int64{0}, memory: []int64{0}, slot: [][]int64{{0}}}
	if got := p.Limit(free); got != 1500 {
		t.Errorf("limit of %d at prices of zero, want all that is asked for, 1500", got)
	}
}
