package residency

import (
	"cmp"
	"slices"
	"time"
)

// Candidate is an instance, of any function, that may be given up for a pod that has no room: one at level Shared.
type Candidate struct {
	ID       string
	Slice    string
	LastUsed time.Duration // time of its last request, from a fixed point in time
}

// Victims returns the instances to give up on one slice so that a pod has room there, least recently used first; none if no slice has
// enough of them. Of several slices it takes the one whose victims have been idle longest.
//
// suffices reports whether the pod has room on the slice without the given instances. Giving up more must never turn it from true to false.
func Victims(from []Candidate, suffices func(slice string, without []Candidate) bool) []Candidate {
	from = slices.Clone(from)
	slices.SortFunc(from, func(a, b Candidate) int { return cmp.Or(cmp.Compare(a.LastUsed, b.LastUsed), cmp.Compare(a.ID, b.ID)) })
	bySlice := map[string][]Candidate{}
	for _, c := range from { // in order of last use, so the first slice to suffice is the one whose victims have been idle longest
		chosen := append(bySlice[c.Slice], c)
		bySlice[c.Slice] = chosen
		if suffices(c.Slice, chosen) {
			return needed(c.Slice, chosen, suffices)
		}
	}
	return nil
}

// needed returns the chosen instances except those that can stay after all; the most recently used are the first to be kept.
func needed(slice string, chosen []Candidate, suffices func(string, []Candidate) bool) []Candidate {
	for i := len(chosen) - 1; i >= 0; i-- {
		if fewer := slices.Delete(slices.Clone(chosen), i, i+1); suffices(slice, fewer) {
			chosen = fewer
		}
	}
	return chosen
}
