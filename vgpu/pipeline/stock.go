package pipeline

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// groupByKind returns the free slices of each ranked kind, sorted by ID. Slices of other kinds are ignored.
func (r *Ranking) groupByKind(free []Slice) ([][]Slice, error) {
	byKind, seen := make([][]Slice, len(r.kinds)), make(map[string]bool, len(free))
	for i, s := range free {
		if s.ID == "" || seen[s.ID] {
			return nil, share.Invalid(fmt.Sprintf("free[%d].id", i), "%.64q is empty or repeated", s.ID)
		}
		seen[s.ID] = true
		if k := slices.Index(r.kinds, s.Kind); k >= 0 {
			byKind[k] = append(byKind[k], s)
		}
	}
	for _, s := range byKind {
		slices.SortFunc(s, func(a, b Slice) int { return cmp.Compare(a.ID, b.ID) })
	}
	return byKind, nil
}

// bySize orders complete choices by compute slices, then memory, then latency.
func (r *Ranking) bySize(a, b *choice) int {
	computeA, memoryA := r.size(a.used)
	computeB, memoryB := r.size(b.used)
	return cmp.Or(cmp.Compare(computeA, computeB), cmp.Compare(memoryA, memoryB), cmp.Compare(a.before, b.before))
}

// size returns the compute slices and the memory of the slices in use.
func (r *Ranking) size(u used) (compute int, memory share.Bytes) {
	for k, kind := range r.kinds {
		compute += int(u[k]) * kind.Compute
		memory += share.Bytes(u[k]) * kind.Memory
	}
	return compute, memory
}

// count returns the number of slices of all kinds.
func count(byKind [][]Slice) int {
	n := 0
	for _, s := range byKind {
		n += len(s)
	}
	return n
}
