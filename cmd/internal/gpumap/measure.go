package gpumap

import "github.com/gshare-dev/gshare/vgpu/share"

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
