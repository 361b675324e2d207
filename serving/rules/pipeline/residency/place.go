package residency

import (
	"slices"
	"time"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// Move is what a Step does with the data of a function.
type Move string

const (
	Load  Move = "load"  // the function's process must take memory on the slice; then call Loaded or Failed
	Evict Move = "evict" // the function's process must give the memory back, or end; then call Evicted
)

// Step is one thing to do so that the slices come to hold what Dispatch has decided.
type Step struct {
	Move     Move
	Function string
	Slice    string
}

// place is what the process of a function actually holds of a slice, which lags behind the decisions of Dispatch. The memory counts until it
// is known to be free. It counts in full during a load or an eviction, because it is unknown how much of it the process holds then.
type place struct {
	slice  *slice // nil: the process holds nothing
	state  placeState
	begun  bool          // Steps has returned the step to the caller; false for an eviction that it has yet to return
	from   Source        // of the load
	failed int           // number of consecutive failed loads
	retry  time.Duration // after a failed load: no turn before this time
}

type placeState string

// States of a place that has a slice.
const (
	loading  placeState = "loading"
	resident placeState = "resident"
	evicting placeState = "evicting"
)

// Steps returns the steps that may begin now, and counts them as begun. A load may begin only once everything that processes hold on the slice
// leaves room for it. Call Steps after Dispatch and after each event. Save a Snapshot before any step is carried out, and before anybody is told
// of new leases, because a restored node knows only what was recorded. A simulator, whose loads and evictions take no steps, carries out each
// Start and never calls Steps.
func (n *Node) Steps() []Step {
	var steps []Step
	for _, f := range n.order {
		p := &f.place
		if p.slice == nil || p.state == loading || p.state == evicting && p.begun || p.state == resident && f.on == p.slice {
			continue
		}
		p.state, p.begun = evicting, true
		steps = append(steps, Step{Evict, f.Name, p.slice.ID})
	}
	for _, f := range n.order {
		if f.on != nil && f.place.slice == nil && n.heldOn(f.on)+f.Memory <= f.on.Kind.Memory {
			f.place.slice, f.place.state, f.place.begun = f.on, loading, true
			steps = append(steps, Step{Load, f.Name, f.on.ID})
		}
	}
	return steps
}

// heldOn returns the memory of a slice that processes hold or may hold.
func (n *Node) heldOn(s *slice) (sum share.Bytes) {
	for _, f := range n.order {
		if f.place.slice == s {
			sum += f.Memory
		}
	}
	return sum
}

// Loaded records that a load has ended: the process of the function can answer requests. Errors are *share.FieldError.
func (n *Node) Loaded(now time.Duration, name string) error {
	n.advanceClock(now)
	f := n.functions[name]
	if f == nil || f.place.state != loading {
		return share.Invalid("function", "%.64q is not being loaded", name)
	}
	f.place.state, f.place.failed, f.place.retry = resident, 0, 0
	if s := f.on; f.running && s == f.place.slice {
		f.learnLoad(n.now - s.started)
		s.loaded = n.now
		s.until = n.now + s.executionTime(f)
	}
	return nil
}

// learnLoad corrects the expected load time of the function by the time that one load took, including the evictions that came first.
func (f *function) learnLoad(took time.Duration) {
	average := func(old time.Duration) time.Duration { return min((old+took)/2, maxTime) }
	if f.place.from == Host {
		f.LoadWarm = average(f.LoadWarm)
		f.LoadCold = max(f.LoadCold, f.LoadWarm)
		return
	}
	f.LoadCold = average(f.LoadCold)
	f.LoadWarm = min(f.LoadWarm, f.LoadCold)
}

// Bounds of the pause after a failed load. The pause doubles with each consecutive failure.
const (
	minPause = time.Second
	maxPause = time.Minute
)

// Failed records that a load has failed or takes too long. The function is evicted, because it is unknown what it holds, and gets no turn for a
// while. Its instance stays. Failed returns the request for which the function was loaded, and false if there was none. Errors are
// *share.FieldError.
func (n *Node) Failed(now time.Duration, name string) (Request, bool, error) {
	n.advanceClock(now)
	f := n.functions[name]
	if f == nil || f.place.state != loading {
		return Request{}, false, share.Invalid("function", "%.64q is not being loaded", name)
	}
	p := &f.place
	p.state, p.begun = evicting, false
	p.retry = n.now + min(minPause<<min(p.failed, 10), maxPause)
	p.failed++
	request, ran := n.endTurn(f)
	if f.exists {
		n.evict(f)
	}
	return request, ran, nil
}

// Evicted records that the process of a function no longer holds any of the slice. Errors are *share.FieldError.
func (n *Node) Evicted(now time.Duration, name string) error {
	n.advanceClock(now)
	f := n.functions[name]
	if f == nil || f.place.state != evicting || !f.place.begun {
		return share.Invalid("function", "%.64q is not being evicted", name)
	}
	f.place.leave()
	return nil
}

// leave records that the process holds nothing.
func (p *place) leave() { p.slice, p.state, p.begun = nil, "", false }

// Ended records that the process of a function has ended, and no longer holds anything of a slice or of the host. The function stays registered,
// and is Cold. Steps returned for it that are not done yet are void. Ended returns the request of its turn, and false if it had none. It has no
// effect on a function that is not registered.
func (n *Node) Ended(now time.Duration, name string) (Request, bool) {
	n.advanceClock(now)
	f := n.functions[name]
	if f == nil {
		return Request{}, false
	}
	f.place.leave()
	request, ran := n.endTurn(f)
	n.unload(f)
	n.host.remove(f)
	return request, ran
}

// endTurn takes the slice away from a function whose process cannot continue, and returns the request of its turn.
func (n *Node) endTurn(f *function) (Request, bool) {
	if !f.running {
		return Request{}, false
	}
	s := f.on
	request := s.request.Request
	s.meter.Add(s.started, n.now)
	n.leaveSlice(s)
	return request, true
}

// leaveSlice ends the turn of the function that runs on a slice.
func (n *Node) leaveSlice(s *slice) {
	f := s.running
	s.running, s.ended, s.bound, f.running, f.used, f.served = nil, n.now, nil, false, n.now, n.now
	if f.terminating {
		n.deleteInstance(f)
	}
}

// holds reports whether a process holds, or may hold, memory of the slice.
func (n *Node) holds(s *slice) bool {
	return slices.ContainsFunc(n.order, func(f *function) bool { return f.place.slice == s })
}
