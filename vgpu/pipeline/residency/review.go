package residency

import (
	"cmp"
	"slices"
	"time"

	"github.com/gshare-dev/gshare/vgpu/scaling"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// Action is what a review advises.
type Action string

const (
	Promote Action = "promote" // create a hot instance of the function, then call Promoted
	End     Action = "end"     // the instance was idle for ColdAfter and has been deleted
	Grow    Action = "grow"    // add a slice, one that runs the function if that is set
	Shrink  Action = "shrink"  // remove the slice
)

// Advice is one result of a review.
type Advice struct {
	Action   Action
	Function string
	Slice    string
}

// Review checks utilisation, idleness and overload. Call it about once a second; it also drops measurements before the window.
// Advice is repeated while its reason holds; only End is already done.
func (n *Node) Review(now time.Duration) []Advice {
	n.advanceClock(now)
	var advice []Advice
	for _, f := range n.order {
		if !f.exists {
			continue
		}
		switch n.policy.Next(n.now, n.instanceState(f)) {
		case scaling.Hot:
			advice = append(advice, Advice{Action: Promote, Function: f.Name})
		case scaling.Cold:
			n.deleteInstance(f)
			advice = append(advice, Advice{Action: End, Function: f.Name})
		}
	}
	return append(advice, n.adviseSliceCount()...)
}

// standing returns the state of an instance for Policy.Next.
func (n *Node) instanceState(f *function) InstanceState {
	running := n.now
	if f.running {
		running = f.on.loaded
	}
	s := InstanceState{
		Residency: scaling.Shared, Since: f.since, LastRequest: f.used,
		Utilisation: n.utilisationWith(&f.meter, running),
		Busy:        f.running || f.waiting.len() > 0,
	}
	if f.terminating || f.on == nil {
		s.Residency = scaling.Warm
	}
	return s
}

// utilisation returns that of the meter plus the request that has been running since a time.
func (n *Node) utilisationWith(m *Meter, since time.Duration) share.PerMille {
	running := min(max(0, n.now-since), n.policy.Window)
	return m.Utilisation(n.now, n.policy.Window) + ratio(running, n.policy.Window)
}

// size advises on the number of slices (FF-49): one more if none runs a function that has requests, or if too many requests
// missed a deadline that they could have met; one less if utilisation is low and the others can run every function.
func (n *Node) adviseSliceCount() []Advice {
	for _, f := range n.order {
		if f.exists && !f.runs && n.now-f.used < n.policy.Window {
			return []Advice{{Action: Grow, Function: f.Name}}
		}
	}
	late := n.outcomes.lateRatio(n.now, n.policy.Window)
	if late > n.policy.Misses {
		return []Advice{{Action: Grow}}
	}
	if late > 0 || n.now-n.resized < n.policy.Window || n.meanUtilisation() >= n.policy.Down {
		return nil
	}
	for _, s := range slices.SortedStableFunc(slices.Values(n.slices), func(a, b *slice) int { return cmp.Compare(a.ended, b.ended) }) {
		if s.running == nil && n.isRemovable(s) {
			return []Advice{{Action: Shrink, Slice: s.ID}}
		}
	}
	return nil
}

// meanUtilisation returns the mean utilisation of the slices, loads included.
func (n *Node) meanUtilisation() share.PerMille {
	sum := 0
	for _, s := range n.slices {
		running := n.now
		if s.running != nil {
			running = s.started
		}
		sum += int(n.utilisationWith(&s.meter, running))
	}
	return share.PerMille(sum / max(len(n.slices), 1))
}

// removable reports whether every function with an instance can run on another slice.
func (n *Node) isRemovable(s *slice) bool {
	for _, f := range n.order {
		runs := func(other *slice) bool { return other != s && other.executionTime(f) > 0 }
		if f.exists && !slices.ContainsFunc(n.slices, runs) {
			return false
		}
	}
	return true
}
