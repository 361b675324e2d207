package residency

import (
	"cmp"
	"slices"
	"time"
)

// candidate is a slice on which a function's next request can start now.
type candidate struct {
	function *function
	slice    *slice
	source   Source
	load     time.Duration
	victims  []*function
}

// candidate returns the idle slice for a function: its own, or the best one to load it to. If its own slice is busy, the function
// moves only if it starts earlier on another one than by waiting.
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
		if s.running != nil || s.executionTime(f) == 0 {
			continue
		}
		p := candidate{f, s, source, load, s.victims(f)}
		if best.slice == nil || n.isBetter(&p, &best) {
			best = p
		}
	}
	return best, best.slice != nil
}

// better reports whether a is preferred to b. In this order: meets the deadline, evicts no function with requests, evicts none
// or those used least recently (FF-47), is the smallest slice (U9).
func (n *Node) isBetter(a, b *candidate) bool {
	return cmp.Or(
		compareBools(n.isLate(a), n.isLate(b)),
		compareBools(slices.ContainsFunc(a.victims, hasRequests), slices.ContainsFunc(b.victims, hasRequests)),
		cmp.Compare(lastUsed(a.victims), lastUsed(b.victims)),
		a.slice.Kind.Compare(b.slice.Kind),
	) < 0
}

// falseFirst compares two booleans; false is less.
func compareBools(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// late reports whether the request misses its deadline there.
func (n *Node) isLate(p *candidate) bool {
	return n.now+p.load+p.slice.executionTime(p.function) > (*p.function.waiting.nextHeap())[0].Deadline
}

// hasRequests reports whether a function has waiting requests.
func hasRequests(f *function) bool { return f.waiting.len() > 0 }

// lastUse returns the last use of the most recently used victim; a negative time if there is none.
func lastUsed(victims []*function) time.Duration {
	if len(victims) == 0 {
		return -1
	}
	return victims[len(victims)-1].used
}
