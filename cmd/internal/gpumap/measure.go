package gpumap

import "github.com/gshare-dev/gshare/vgpu/share"

// fullFrom is where a GPU counts as full: less than a twentieth is left, about the reserve of a slot table.
const fullFrom = share.WholeArea / 100 * 95

// level is how full a GPU is, in steps that one character can show.
type level int8

const (
	gap    level = -1 // no GPU but the space between two nodes
	empty  level = 0
	full   level = 7
	levels       = 8
)

// promised is the SM-time that the shares may count on.
func (s Slice) allocated() share.Area {
	var sum share.Area
	for _, x := range s.Shares {
		sum += x.Share.RequestArea()
	}
	return sum
}

// memory is the device memory that the shares have.
func (s Slice) memory() share.Bytes {
	var sum share.Bytes
	for _, x := range s.Shares {
		sum += x.Share.Memory
	}
	return sum
}

// level of the slice; a single small share is enough not to be empty.
func (s Slice) level() level {
	switch area := s.allocated(); {
	case len(s.Shares) == 0:
		return empty
	case area >= fullFrom:
		return full
	default:
		return 1 + level(max(area, 0)*share.Area(full-1)/fullFrom)
	}
}

// counts is how many GPUs are full, partly full and empty.
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

// sums describe some GPUs together.
type sums struct {
	counts
	nodes        int
	area         share.Area
	memory, have share.Bytes
}

func (t *sums) slice(s Slice) {
	t.counts.add(s.level())
	t.area += s.allocated()
	t.memory += s.memory()
	t.have += s.MemoryTotal
}

// join adds the GPUs of another group; its nodes are counted by the caller, since groups may share them.
func (t *sums) join(o sums) {
	t.full, t.partly, t.empty = t.full+o.full, t.partly+o.partly, t.empty+o.empty
	t.area += o.area
	t.memory += o.memory
	t.have += o.have
}

// mean is the SM-time that is promised of all there is.
func (t sums) mean() share.PerMille {
	return part(int64(t.area/share.Area(share.Whole)), int64(t.all())*int64(share.Whole))
}

// part is n of d in per mille; nothing of nothing is nothing.
func part(n, d int64) share.PerMille {
	if d <= 0 {
		return 0
	}
	return share.PerMille(float64(n)/float64(d)*float64(share.Whole) + 0.5)
}
