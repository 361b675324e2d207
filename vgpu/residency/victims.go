package residency

import (
	"cmp"
	"slices"
	"time"
)

// Candidate is an instance, of any function, that may be given up for a pod that has no room: one at level Shared.
type Candidate struct {
	ID       string
	Place    string
	LastUsed time.Duration // time of its last request, from a fixed point in time
}

// Victims returns the instances to give up at one place so that a pod has room there, least recently used first; none if no place has
// enough of them. Of several places it takes the one whose victims have been idle longest. A place is a slice or, for a pod that needs several
// slices, a node.
//
// suffices reports whether the pod has room at the place without the given instances. Giving up more must never turn it from true to false.
func Victims(from []Candidate, suffices func(place string, without []Candidate) bool) []Candidate {
	from = slices.Clone(from)
	slices.SortFunc(from, func(a, b Candidate) int { return cmp.Or(cmp.Compare(a.LastUsed, b.LastUsed), cmp.Compare(a.ID, b.ID)) })
	byPlace := map[string][]Candidate{}
	for _, c := range from { // in order of last use, so the first place to suffice is the one whose victims have been idle longest
		chosen := append(byPlace[c.Place], c)
		byPlace[c.Place] = chosen
		if suffices(c.Place, chosen) {
			return needed(c.Place, chosen, suffices)
		}
	}
	return nil
}

// needed returns the chosen instances except those that can stay after all; the most recently used are the first to be kept.
func needed(place string, chosen []Candidate, suffices func(string, []Candidate) bool) []Candidate {
	for i := len(chosen) - 1; i >= 0; i-- {
		if fewer := slices.Delete(slices.Clone(chosen), i, i+1); suffices(place, fewer) {
			chosen = fewer
		}
	}
	return chosen
}
