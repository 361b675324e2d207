package cluster

import (
	"math/rand/v2"

	"github.com/gshare-dev/gshare/vgpu/packing"
)

// How far to look ahead: the number of nodes with different ranks to try, and the number of pods to place afterwards.
const (
	branches = 4
	horizon  = 24
	nearby   = 64 // number of nodes among which to look for different ranks
)

// ahead tries rollouts: for each of the best nodes it places the pod there and then, by gshare's policy, a sample of pods drawn from those that
// run, the same sample for all these nodes. It takes the node after which the cost is least, counting the GPUs of pods that found no room.
type ahead struct {
	*gsharePolicy
	random *rand.Rand // separate, so that the same pods arrive as under other policies
	ran    []*shape   // shapes of the placed pods, in the order of placement
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

// candidates returns the best nodes with different ranks, the best first.
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

// leastAfter returns the candidate with which placing the pods to come costs least.
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

// costAfter returns the cost of placing the pods in next after the pod on the node, and undoes all these placements.
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

// tryOn places the pod on a copy of the node. It saves the original node in before, unless an earlier call has done so.
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
