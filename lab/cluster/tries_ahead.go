package cluster

import (
	"math/rand/v2"

	"github.com/gshare-dev/gshare/vgpu/packing"
)

// How far ahead is looked: the nodes of different rank that are tried, and the pods that come after.
const (
	branches = 4
	horizon  = 24
	nearby   = 64 // nodes among which different ranks are looked for
)

// ahead tries rollouts: for each of the best nodes, pods drawn from those that run are placed after the pod by gshare's policy, the same for all
// of these nodes. That one is taken after which their costs, and the GPUs of those that found no room, are least.
type ahead struct {
	*gsharePolicy
	random *rand.Rand // its own, so that the same pods arrive as under other policies
	ran    []*shape   // pods, in the order in which they were placed
}

func newAhead(s *Simulation) policy {
	return &ahead{gsharePolicy: newGsharePolicy(s), random: rand.New(rand.NewPCG(1, 1))}
}

func (a *ahead) placed(s *shape, i int, gpus []int) {
	a.ran = append(a.ran, s)
	a.gsharePolicy.placed(s, i, gpus)
}

func (a *ahead) choose(s *shape) (int, []int, bool) {
	a.learn()
	list := a.candidates(s)
	if len(list) == 0 {
		return 0, nil, false
	}
	best := list[0].Node
	if len(list) > 1 && len(a.ran) > 0 {
		best = a.leastAfter(s, list)
	}
	p := &a.pods[s.index]
	a.plan, _, _ = a.packer.Place(a.nodes[best], p.pod)
	return best, gpusOf(a.plan), true
}

// candidates returns the best nodes of different rank, the best first.
func (a *ahead) candidates(s *shape) (list []packing.Candidate) {
	p := &a.pods[s.index]
	eligible := func(i int) bool { return a.nodes[i].CPU >= p.pod.CPU && a.nodes[i].RAM >= p.pod.RAM }
	for _, c := range a.fleet.Best(p.key, p.pod, nearby, eligible) {
		if len(list) < branches && (len(list) == 0 || list[len(list)-1].Rank != c.Rank) {
			list = append(list, c)
		}
	}
	return list
}

// leastAfter returns the candidate after which the pods to come cost least.
func (a *ahead) leastAfter(s *shape, list []packing.Candidate) int {
	var next [horizon]*shape
	for i := range next {
		next[i] = a.ran[a.random.IntN(len(a.ran))]
	}
	best, least := 0, int64(0)
	for i, c := range list {
		if cost := c.Rank.Cost() + a.costAfter(s, c.Node, next[:]); i == 0 || cost < least {
			best, least = c.Node, cost
		}
	}
	return best
}

// costAfter returns the cost of placing the pods to come after the pod on the node, and undoes all of it.
func (a *ahead) costAfter(s *shape, node int, next []*shape) (cost int64) {
	before := map[int]*packing.Node{}
	a.tryOn(s, node, before)
	for _, sh := range next {
		p := &a.pods[sh.index]
		if c, ok := a.fleet.BestWithCapacity(p.key, p.pod); ok {
			cost += c.Rank.Cost()
			a.tryOn(sh, c.Node, before)
		} else {
			cost += int64(sh.pod.gpu()) * milliGPU
		}
	}
	for i, n := range before {
		a.nodes[i] = n
		a.set(i)
	}
	return cost
}

// tryOn places the pod on a copy of the node, and keeps the node as it was before all of it.
func (a *ahead) tryOn(s *shape, node int, before map[int]*packing.Node) {
	p, n := &a.pods[s.index], a.nodes[node].Clone()
	if before[node] == nil {
		before[node] = a.nodes[node]
	}
	plan, _, _ := a.packer.Place(n, p.pod)
	n.Take(packing.Slots, p.pod, plan)
	n.CPU -= p.pod.CPU
	n.RAM -= p.pod.RAM
	a.nodes[node] = n
	a.set(node)
}
