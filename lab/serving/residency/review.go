package residency

import (
	"cmp"
	"slices"
	"time"

	"github.com/gshare-dev/gshare/serving/rules/scaling"
	"github.com/gshare-dev/gshare/serving/rules/scaling/pool"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// Action is a kind of change to instances or slices that Node.Review advises.
type Action string

const (
	Promote Action = "promote" // create a hot instance of the function, then call RemovePromoted
	End     Action = "end"     // the instance was idle for ColdAfter and has been deleted
	Grow    Action = "grow"    // add a slice; one that can run the function, if Function is set
	Shrink  Action = "shrink"  // remove the slice
)

// Advice is one change that Node.Review advises, with the function or the slice concerned.
type Advice struct {
	Action   Action
	Function string
	Slice    string
}

// Review checks utilisation, idleness and overload, and returns what the caller should do about them. Call it about once a second; it
// also drops measurements older than the window. Advice is repeated until its reason is gone. The caller carries it out, except for
// End, which reports an instance that Review has already deleted.
func (n *Node) Review(now time.Duration) []Advice {
	n.advanceClock(now)
	var advice []Advice
	for _, f := range n.order {
		if !f.exists {
			continue
		}
		switch n.policy.Next(n.now, n.instance(f)) {
		case scaling.Hot:
			advice = append(advice, Advice{Action: Promote, Function: f.Name})
		case scaling.Cold:
			n.deleteInstance(f)
			advice = append(advice, Advice{Action: End, Function: f.Name})
		}
	}
	return append(advice, n.adviseSliceCount()...)
}

func (n *Node) instance(f *function) *pool.Instance {
	running := n.now
	if f.running {
		running = f.on.loaded
	}
	i := &pool.Instance{
		Residency: scaling.Shared, Since: f.since, LastUsed: f.used,
		Utilisation: n.utilisationWith(&f.meter, running),
		Busy:        f.running || f.waiting.len() > 0,
	}
	if f.terminating || f.on == nil {
		i.Residency = scaling.Warm
	}
	return i
}

// utilisationWith returns the measured utilisation of a slice or a function, including a request that has been running since the given
// time.
func (n *Node) utilisationWith(m *Meter, since time.Duration) share.PerMille {
	running := min(max(0, n.now-since), n.policy.Window)
	return m.Utilisation(n.now, n.policy.Window) + ratio(running, n.policy.Window)
}

// adviseSliceCount advises adding a slice if no slice can run a function that has requests, or if too many requests missed a
// feasible deadline. It advises removing one if utilisation is low and the remaining slices can run every function.
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

// meanUtilisation returns the mean utilisation of the shared slices. Load times count as use.
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

// isRemovable reports whether every function with an instance can run on some slice other than the given one.
func (n *Node) isRemovable(s *slice) bool {
	for _, f := range n.order {
		runs := func(other *slice) bool { return other != s && other.executionTime(f) > 0 }
		if f.exists && !slices.ContainsFunc(n.slices, runs) {
			return false
		}
	}
	return true
}
