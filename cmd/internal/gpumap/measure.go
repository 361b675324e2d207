package gpumap

import (
	"cmp"
	"slices"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// fullThreshold is the allocated SM-time from which a GPU counts as full: 95 %, because about a twentieth is kept for switching between turns.
const fullThreshold = share.WholeArea / 100 * 95

// level is how full a GPU is, in eight steps, each with a character of its own.
type level int8

const (
	gap    level = -1 // the space between two nodes
	empty  level = 0
	full   level = 7
	levels       = 8
)

// allocated returns the SM-time (SMs times quota) that the shares on the slice request.
func (s Slice) allocated() share.Area {
	var sum share.Area
	for _, x := range s.Shares {
		sum += x.Share.RequestArea()
	}
	return sum
}

// memory returns the GPU memory that the shares on the slice request.
func (s Slice) memory() share.Bytes {
	var sum share.Bytes
	for _, x := range s.Shares {
		sum += x.Share.Memory
	}
	return sum
}

// fillLevel returns how full the slice is. A slice with a share, however small, does not count as empty.
func (s Slice) fillLevel() level {
	switch area := s.allocated(); {
	case len(s.Shares) == 0:
		return empty
	case area >= fullThreshold:
		return full
	default:
		return 1 + level(max(area, 0)*share.Area(full-1)/fullThreshold)
	}
}

// counts holds how many of a set of GPUs are full, partly full and empty.
type counts struct{ full, partly, empty int }

func (c counts) all() int { return c.full + c.partly + c.empty }

func (c *counts) add(l level) {
	switch l {
	case gap:
	case full:
		c.full++
	case empty:
		c.empty++
	default:
		c.partly++
	}
}

// totals holds the totals of a set of GPUs: how many are full, their nodes, and their allocated SM-time and memory.
type totals struct {
	counts
	nodes        int
	area         share.Area
	memory, have share.Bytes
}

func (t *totals) slice(s Slice) {
	t.counts.add(s.fillLevel())
	t.area += s.allocated()
	t.memory += s.memory()
	t.have += s.MemoryTotal
}

// addGroup adds the totals of another group of GPUs except for its number of nodes, because both groups may have GPUs on the same node.
func (t *totals) addGroup(o totals) {
	t.full, t.partly, t.empty = t.full+o.full, t.partly+o.partly, t.empty+o.empty
	t.area += o.area
	t.memory += o.memory
	t.have += o.have
}

// meanAllocated returns the allocated fraction of the SM-time of all GPUs.
func (t totals) meanAllocated() share.PerMille {
	return part(int64(t.area/share.Area(share.Whole)), int64(t.all())*int64(share.Whole))
}

func part(n, d int64) share.PerMille {
	if d <= 0 {
		return 0
	}
	return share.PerMille(float64(n)/float64(d)*float64(share.Whole) + 0.5)
}

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
