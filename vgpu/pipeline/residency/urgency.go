package residency

import (
	"container/heap"
	"slices"
	"time"

	"github.com/gshare-dev/gshare/vgpu/pipeline/routing"
)

// sortOut takes the requests that cannot meet their deadline out of the live ones, and returns them if they are refused.
func (n *Node) sortOut() []Request {
	var refused []Request
	for _, f := range n.active {
		if len(f.waiting.live) == 0 {
			continue
		}
		execution, load := n.estimate(f)
		for _, r := range f.waiting.lost(n.now, execution+load) {
			if !n.policy.Refuse {
				heap.Push(&f.waiting.hopeless, r)
				continue
			}
			refused = append(refused, r.Request)
			n.outcomes.add(n.now, n.policy.Window, r.winnable)
		}
	}
	return refused
}

// estimate is what a request of a function takes if it is run now: on its slice, or with a load on the fastest that there
// is.
func (n *Node) estimate(f *function) (execution, load time.Duration) {
	if f.on != nil {
		return f.on.time(f), 0
	}
	load, _ = n.load(f)
	return f.fastest, load
}

func (n *Node) load(f *function) (time.Duration, Source) {
	if f.on != nil || n.host.has(f) {
		return f.LoadWarm, Host
	}
	return f.LoadCold, Storage
}

// next finds the request that goes next and its place.
func (n *Node) next() (place, bool) {
	pending := n.pending()
	for _, f := range pending {
		p, ok := n.place(f)
		if !ok {
			continue
		}
		if first, found := n.yields(p, pending); found {
			return first, true
		}
		return p, true
	}
	return place{}, false
}

// pending lists the functions with requests that may run, the most urgent first. One instance runs one request.
func (n *Node) pending() []*function {
	var pending []*function
	for _, f := range n.active {
		if !f.running && f.waiting.len() > 0 && f.runs {
			pending = append(pending, f)
		}
	}
	slices.SortFunc(pending, func(a, b *function) int { return routing.Compare(n.now, n.head(a), n.head(b)) })
	return pending
}

// head is the first request of a function as it stands now.
func (n *Node) head(f *function) routing.Request {
	r := (*f.waiting.next())[0]
	execution, load := n.estimate(f)
	return routing.Request{ID: r.ID, Deadline: r.Deadline, Execution: execution, Load: load}
}

// yields finds a function that lies on the slice to which another is to be loaded, and that can run there before without
// making the other late. The load is in the slack of what is not resident, which therefore looks more urgent; loading at
// once would move data for nearly every request where two functions take turns.
func (n *Node) yields(p place, pending []*function) (place, bool) {
	if p.load == 0 {
		return place{}, false
	}
	latest := n.head(p.function).LatestStart()
	for _, f := range pending {
		if f.on == p.slice && len(f.waiting.live) > 0 && n.now+p.slice.time(f) <= latest {
			return place{function: f, slice: p.slice, source: Resident}, true
		}
	}
	return place{}, false
}
