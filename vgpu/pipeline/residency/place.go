package residency

import (
	"cmp"
	"slices"
	"time"
)

// place is where a function's next request can start now.
type place struct {
	function *function
	slice    *slice
	source   Source
	load     time.Duration
	victims  []*function
}

// place finds an idle slice for a function: its own, or the best to load it to. If its own is busy with another function,
// it moves only where it starts sooner than by waiting.
func (n *Node) place(f *function) (place, bool) {
	if f.on != nil && f.on.running == nil {
		return place{function: f, slice: f.on, source: Resident}, true
	}
	load, source := n.load(f)
	if f.on != nil && n.now+load >= f.on.until {
		return place{}, false
	}
	var best place
	for _, s := range n.slices {
		if s.running != nil || s.time(f) == 0 {
			continue
		}
		p := place{f, s, source, load, s.victims(f)}
		if best.slice == nil || n.better(&p, &best) {
			best = p
		}
	}
	return best, best.slice != nil
}

// better prefers, in this order: to be in time, to evict nobody who has requests, to evict nobody at all or who was
// used least recently (FF-47), and the smallest slice (U9).
func (n *Node) better(a, b *place) bool {
	return cmp.Or(
		no(n.late(a), n.late(b)),
		no(slices.ContainsFunc(a.victims, wanted), slices.ContainsFunc(b.victims, wanted)),
		cmp.Compare(lastUse(a.victims), lastUse(b.victims)),
		a.slice.Kind.Compare(b.slice.Kind),
	) < 0
}

// no orders false before true.
func no(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

func (n *Node) late(p *place) bool {
	return n.now+p.load+p.slice.time(p.function) > (*p.function.waiting.next())[0].Deadline
}

func wanted(f *function) bool { return f.waiting.len() > 0 }

// lastUse is when the last of victims, which is the most recently used one, was used; before all time where there is none.
func lastUse(victims []*function) time.Duration {
	if len(victims) == 0 {
		return -1
	}
	return victims[len(victims)-1].used
}
