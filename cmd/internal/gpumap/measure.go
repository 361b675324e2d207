package gpumap

import "github.com/gshare-dev/gshare/vgpu/share"

// fullFrom is the SM-time from which a GPU counts as full. The rest, a twentieth, is about the reserve of a slot table.
const fullFrom = share.WholeArea / 100 * 95

// level is the fill level of a GPU, in steps that one character can show.
type level int8

const (
	gap    level = -1 // the space between two nodes
	empty  level = 0
	full   level = 7
	levels       = 8
)

// allocated returns the SM-time that the shares request.
func (s Slice) allocated() share.Area {
	var sum share.Area
	for _, x := range s.Shares {
		sum += x.Share.RequestArea()
	}
	return sum
}

// memory returns the device memory of the shares.
func (s Slice) memory() share.Bytes {
	var sum share.Bytes
	for _, x := range s.Shares {
		sum += x.Share.Memory
	}
	return sum
}

// level returns the fill level of the slice. With a share of any size it is not empty.
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

// counts holds the numbers of full, partly full and empty GPUs.
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

// sums holds the totals of a set of GPUs.
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

// join adds the GPUs of another group. The caller counts its nodes, as groups may have nodes in common.
func (t *sums) join(o sums) {
	t.full, t.partly, t.empty = t.full+o.full, t.partly+o.partly, t.empty+o.empty
	t.area += o.area
	t.memory += o.memory
	t.have += o.have
}

// mean returns the allocated part of all SM-time.
func (t sums) mean() share.PerMille {
	return part(int64(t.area/share.Area(share.Whole)), int64(t.all())*int64(share.Whole))
}

// part returns n/d in per mille, or 0 if d is 0.
func part(n, d int64) share.PerMille {
	if d <= 0 {
		return 0
	}
	return share.PerMille(float64(n)/float64(d)*float64(share.Whole) + 0.5)
}
