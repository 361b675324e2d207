package residency

import (
	"cmp"
	"slices"
	"time"
)

// candidate is an idle slice on which a function's next request could start now, with what that takes: the load time and the functions to
// evict.
type candidate struct {
	function *function
	slice    *slice
	source   Source
	load     time.Duration
	victims  []*function
}

// bestCandidate returns the idle slice on which a function should run next: the slice that holds its data, or the best one to load it to.
// If the slice that holds its data is busy, the function moves only if it can start earlier elsewhere. It returns false if there is none.
func (n *Node) bestCandidate(f *function) (candidate, bool) {
	if f.on != nil && f.on.running == nil {
		return candidate{function: f, slice: f.on, source: Resident}, true
	}
	load, source := n.loadTime(f)
	if f.on != nil && n.now+load >= f.on.until {
		return candidate{}, false
	}
	var best candidate
	for _, s := range n.slices {
		if s.running != nil || s.executionTime(f) == 0 { // U11
			continue
		}
		p := candidate{f, s, source, load, s.victims(f)}
		if best.slice == nil || n.isBetter(&p, &best) {
			best = p
		}
	}
	return best, best.slice != nil
}

// isBetter reports whether candidate a is preferred to b. The criteria, in this order: it meets the deadline; it evicts no function with
// waiting requests; it evicts none, or those used least recently; it is the smallest slice.
func (n *Node) isBetter(a, b *candidate) bool {
	return cmp.Or(
		compareBools(n.isLate(a), n.isLate(b)),
		compareBools(slices.ContainsFunc(a.victims, hasRequests), slices.ContainsFunc(b.victims, hasRequests)),
		cmp.Compare(lastUsed(a.victims), lastUsed(b.victims)),
		a.slice.Kind.Compare(b.slice.Kind), // U9
	) < 0
}

// compareBools compares two booleans for sorting; false is less than true.
func compareBools(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// isLate reports whether the function's next request would miss its deadline on the candidate's slice.
func (n *Node) isLate(p *candidate) bool {
	return n.now+p.load+p.slice.executionTime(p.function) > (*p.function.waiting.nextHeap())[0].Deadline
}

func hasRequests(f *function) bool { return f.waiting.len() > 0 }

// lastUsed returns the time of the last use of the most recently used function to evict, or a negative time if there is none.
func lastUsed(victims []*function) time.Duration {
	if len(victims) == 0 {
		return -1
	}
	return victims[len(victims)-1].used
}
