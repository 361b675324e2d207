package residency

import (
	"cmp"
	"slices"
	"time"

	"github.com/gshare-dev/gshare/vgpu/scaling"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// Action is what a review wants done.
type Action string

const (
	Promote Action = "promote" // the function wants a hot instance; say Leave when it serves
	End     Action = "end"     // the instance was without requests for long and is gone: it is Cold
	Grow    Action = "grow"    // share one more slice, and one that runs the function if it is named
	Shrink  Action = "shrink"  // remove the slice
)

// Advice is one finding of a review.
type Advice struct {
	Action   Action
	Function string
	Slice    string
}

// Review looks at what changes with time: use, idleness and overload. Call it about once a second: it also forgets what lies
// before the window. What it advises it
// advises again as long as it holds; only End is carried out by itself.
func (n *Node) Review(now time.Duration) []Advice {
	n.advance(now)
	var advice []Advice
	for _, f := range n.order {
		if !f.exists {
			continue
		}
		switch n.policy.Next(n.now, n.standing(f)) {
		case scaling.Hot:
			advice = append(advice, Advice{Action: Promote, Function: f.Name})
		case scaling.Cold:
			n.end(f)
			advice = append(advice, Advice{Action: End, Function: f.Name})
		}
	}
	return append(advice, n.size()...)
}

func (n *Node) standing(f *function) Standing {
	running := n.now
	if f.running {
		running = f.on.loaded
	}
	s := Standing{
		Residency: scaling.Shared, Since: f.since, LastRequest: f.used,
		Utilisation: n.utilisation(&f.meter, running),
		Busy:        f.running || f.waiting.len() > 0,
	}
	if f.leaving || f.on == nil {
		s.Residency = scaling.Warm
	}
	return s
}

// utilisation adds what has been running since a time to what the meter knows.
func (n *Node) utilisation(m *Meter, since time.Duration) share.PerMille {
	running := min(max(0, n.now-since), n.policy.Window)
	return m.Utilisation(n.now, n.policy.Window) + part(running, n.policy.Window)
}

// size advises on the number of slices (FF-49). One more where a function wants to run that none of them runs, or where too
// many requests that could have been in time were late; one less where they are little used and the others can run
// everything.
func (n *Node) size() []Advice {
	for _, f := range n.order {
		if f.exists && !f.runs && n.now-f.used < n.policy.Window {
			return []Advice{{Action: Grow, Function: f.Name}}
		}
	}
	late := n.outcomes.late(n.now, n.policy.Window)
	if late > n.policy.Misses {
		return []Advice{{Action: Grow}}
	}
	if late > 0 || n.now-n.resized < n.policy.Window || n.occupation() >= n.policy.Down {
		return nil
	}
	for _, s := range slices.SortedStableFunc(slices.Values(n.slices), func(a, b *slice) int { return cmp.Compare(a.ended, b.ended) }) {
		if s.running == nil && n.spares(s) {
			return []Advice{{Action: Shrink, Slice: s.ID}}
		}
	}
	return nil
}

// occupation is the mean use of the slices, loads included.
func (n *Node) occupation() share.PerMille {
	sum := 0
	for _, s := range n.slices {
		running := n.now
		if s.running != nil {
			running = s.started
		}
		sum += int(n.utilisation(&s.meter, running))
	}
	return share.PerMille(sum / max(len(n.slices), 1))
}

// spares says that every function with an instance runs on another slice too.
func (n *Node) spares(s *slice) bool {
	for _, f := range n.order {
		runs := func(other *slice) bool { return other != s && other.time(f) > 0 }
		if f.exists && !slices.ContainsFunc(n.slices, runs) {
			return false
		}
	}
	return true
}
