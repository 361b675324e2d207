package pipeline

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// stock sorts free slices by kind, and within a kind by ID.
func (r *Ranking) stock(free []Slice) ([][]Slice, error) {
	stock, seen := make([][]Slice, len(r.kinds)), make(map[string]bool, len(free))
	for i, s := range free {
		if s.ID == "" || seen[s.ID] {
			return nil, share.Invalid(fmt.Sprintf("free[%d].id", i), "%.64q is empty or there twice", s.ID)
		}
		seen[s.ID] = true
		if k := slices.Index(r.kinds, s.Kind); k >= 0 {
			stock[k] = append(stock[k], s)
		}
	}
	for _, s := range stock {
		slices.SortFunc(s, func(a, b Slice) int { return cmp.Compare(a.ID, b.ID) })
	}
	return stock, nil
}

// bySize orders whole choices by what they take, and by latency where that is equal.
func (r *Ranking) bySize(a, b *choice) int {
	computeA, memoryA := r.size(a.used)
	computeB, memoryB := r.size(b.used)
	return cmp.Or(cmp.Compare(computeA, computeB), cmp.Compare(memoryA, memoryB), cmp.Compare(a.before, b.before))
}

func (r *Ranking) size(u used) (compute int, memory share.Bytes) {
	for k, kind := range r.kinds {
		compute += int(u[k]) * kind.Compute
		memory += share.Bytes(u[k]) * kind.Memory
	}
	return compute, memory
}

func count(stock [][]Slice) int {
	n := 0
	for _, s := range stock {
		n += len(s)
	}
	return n
}
