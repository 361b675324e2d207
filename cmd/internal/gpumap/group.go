package gpumap

import (
	"cmp"
	"slices"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// node holds those GPUs of one node that are of the same model.
type node struct {
	name string
	gpus []Slice
}

// group holds all GPUs of one model, by node.
type group struct {
	model string
	nodes []node
	totals
}

// groups groups the GPUs by model, and those of a model by node, with the fullest nodes first.
func groups(gpus []Slice) []group {
	sorted := slices.Clone(gpus)
	slices.SortStableFunc(sorted, func(a, b Slice) int {
		return cmp.Or(cmp.Compare(a.Model, b.Model), cmp.Compare(a.Node, b.Node), cmp.Compare(a.Index, b.Index))
	})
	var list []group
	for len(sorted) > 0 {
		n := sameKeyPrefix(sorted, func(s Slice) string { return s.Model })
		list = append(list, groupOf(sorted[:n]))
		sorted = sorted[n:]
	}
	return list
}

// groupOf groups GPUs of one model, which must be sorted by node.
func groupOf(gpus []Slice) group {
	g := group{model: gpus[0].Model}
	for _, s := range gpus {
		g.slice(s)
	}
	for len(gpus) > 0 {
		n := sameKeyPrefix(gpus, func(s Slice) string { return s.Node })
		g.nodes = append(g.nodes, node{gpus[0].Node, gpus[:n]})
		gpus = gpus[n:]
	}
	g.totals.nodes = len(g.nodes)
	slices.SortStableFunc(g.nodes, func(a, b node) int { return cmp.Compare(b.fullness(), a.fullness()) })
	return g
}

// sameKeyPrefix returns how many of the first GPUs have the same key.
func sameKeyPrefix(gpus []Slice, key func(Slice) string) int {
	first := key(gpus[0])
	if n := slices.IndexFunc(gpus, func(s Slice) bool { return key(s) != first }); n >= 0 {
		return n
	}
	return len(gpus)
}

// fullness returns the mean allocated SM-time (SMs times quota) of the node's GPUs.
func (n node) fullness() share.Area {
	var sum share.Area
	for _, s := range n.gpus {
		sum += s.allocated()
	}
	return sum / share.Area(len(n.gpus))
}

// sumGroups returns the totals of all groups. A node with GPUs of two models counts once.
func sumGroups(list []group) totals {
	var t totals
	names := map[string]bool{}
	for _, g := range list {
		t.addGroup(g.totals)
		for _, n := range g.nodes {
			names[n.name] = true
		}
	}
	t.nodes = len(names)
	return t
}
