package rebalance

import (
	"cmp"
	"slices"

	"github.com/gshare-dev/gshare/vgpu/packing"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// Admit returns the shortest plan it finds after which the waiting pod fits, and whether it found one; the plan has no moves if the pod
// fits already. It tries all sets of one and of two pods, then one larger set per node from which no pod can be left out. Among sets of
// equal size it prefers the least reluctance, then the smallest pods.
func Admit(c *Cluster, waiting *Pod, l Limits) (Plan, bool) {
	s := newState(c, true)
	for size := range 4 {
		if l.Moves < size {
			break
		}
		for _, v := range s.victims(waiting, size, l.Moves) {
			if s.makeRoom(waiting, v) {
				plan := s.plan()
				plan.Node = v.node
				return plan, true
			}
		}
	}
	return Plan{}, false
}

// victims is a set of pods of one node that might be moved away to make room.
type victims struct {
	node       int
	pods       []int
	reluctance int        // sum
	area       share.Area // sum
}

// manyVictims, as a set size, stands for sets of any size from which no pod can be left out.
const manyVictims = 3

// victims returns the sets of pods of the given size, at most most pods each, whose removal would let the waiting pod fit on their node, in
// the order in which to try them.
func (s *state) victims(waiting *Pod, size, most int) (list []victims) {
	for node := range s.nodes {
		if s.Eligible != nil && !s.Eligible(waiting, node) {
			continue
		}
		for _, pods := range s.sets(waiting, node, size) {
			if len(pods) > most || !s.fitsWithout(waiting, node, pods) {
				continue
			}
			v := victims{node: node, pods: pods}
			for _, p := range pods {
				v.reluctance += s.Pods[p].Reluctance()
				v.area += s.Pods[p].Request.Area()
			}
			list = append(list, v)
		}
	}
	slices.SortStableFunc(list, func(a, b victims) int {
		return cmp.Or(cmp.Compare(len(a.pods), len(b.pods)), cmp.Compare(a.reluctance, b.reluctance), cmp.Compare(a.area, b.area))
	})
	return list
}

// sets returns candidate sets of movable pods of a node: all sets of size 0, 1 or 2; for manyVictims, one set from which no pod can be left
// out.
func (s *state) sets(waiting *Pod, node, size int) (sets [][]int) {
	if size == 0 {
		return [][]int{nil}
	}
	var pods []int
	for _, p := range s.on[node] {
		if s.mayMove(p) {
			pods = append(pods, p)
		}
	}
	if len(pods) < size || !s.fitsWithout(waiting, node, pods) {
		return nil
	}
	if size == manyVictims {
		return [][]int{s.leastOf(waiting, node, pods)}
	}
	for i, p := range pods {
		if size == 1 {
			sets = append(sets, []int{p})
			continue
		}
		for _, q := range pods[i+1:] {
			sets = append(sets, []int{p, q})
		}
	}
	return sets
}

// leastOf drops from a set every pod that need not be moved. It tries the most reluctant pods first, and among those the largest.
func (s *state) leastOf(waiting *Pod, node int, pods []int) []int {
	least := slices.Clone(pods)
	slices.SortStableFunc(pods, func(a, b int) int {
		return cmp.Or(cmp.Compare(s.Pods[b].Reluctance(), s.Pods[a].Reluctance()), compareSizes(&s.Pods[b], &s.Pods[a]))
	})
	for _, p := range pods {
		others := slices.DeleteFunc(slices.Clone(least), func(o int) bool { return o == p })
		if s.fitsWithout(waiting, node, others) {
			least = others
		}
	}
	return least
}

// fitsWithout reports whether the waiting pod would fit on a node from which some pods are gone.
func (s *state) fitsWithout(waiting *Pod, node int, gone []int) bool {
	_, ok := s.placeWithout(waiting, node, gone)
	return ok
}

func (s *state) placeWithout(waiting *Pod, node int, gone []int) (packing.Plan, bool) {
	n := s.nodes[node]
	if len(gone) > 0 {
		n = s.without(node, gone)
	}
	if !waiting.fits(n) {
		return nil, false
	}
	plan, _, refusal := s.Packer.Place(n, &waiting.Pod)
	return plan, refusal == packing.Admitted
}

// makeRoom moves the victims away and reports whether the waiting pod then fits on their node. If it does not, makeRoom changes nothing.
func (s *state) makeRoom(waiting *Pod, v victims) bool {
	plan, ok := s.placeWithout(waiting, v.node, v.pods)
	if !ok {
		return false
	}
	s.close(s.devicesOf(spot{v.node, plan}))
	defer s.close(nil)
	return s.clear(v.pods, func() bool { return s.fitsWithout(waiting, v.node, nil) })
}
