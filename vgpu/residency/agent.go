package residency

import "github.com/gshare-dev/gshare/vgpu/share"

// Instance is what the agent knows about one started pod. Wanted and Reached are from its view of the pod, which may lag behind, and after
// a restart even be older than it was before.
type Instance struct {
	Wanted  Wanted
	Reached Reached
	// Record is what grant.json says. The agent's records count Record.Level, never what it sees in the pod.
	Record Reached
	// Enforced is what the token server or the parked process was last told; Cold before the container starts, Unknown after a restart.
	Enforced Level
	// Kept is the memory that the parked process keeps on each device, and Host the host memory that it occupies instead, once Warm is enforced.
	Kept, Host share.Bytes
	// CannotPark says that the agent has tried to enforce Warm, as Wanted asks, and could not.
	CannotPark bool
}

// Effect is the kind of a Step.
type Effect int8

// The effects. Enforce changes the limits of the token server, or parks or wakes the process, and is complete when it returns: by then a
// parked process has given its memory back and can allocate no more than it keeps. If the process cannot be parked, Enforced becomes
// Unknown. Save writes grant.json. Report writes the annotation, if Wanted and Reached are as in the agent's view.
const (
	Idle Effect = iota
	Enforce
	Save
	Report
)

// Step is one thing that the agent does for an instance. An Enforce step has a Level; Save and Report have a Record.
type Step struct {
	Effect Effect
	Level  Level
	Record Reached
}

// Start returns the record of a pod whose container is about to start (PreStartContainer), for its present Wanted. If there is no room, or
// the pod is to be deleted, ok is false: the start is refused and may be tried again, and the result must be reported but not recorded.
// Once the result is recorded, Next says what to do before the container may start, which is everything until it returns Report or Idle.
//
// fits reports whether the pod fits at a level, given the records of all others on the slice.
func Start(w Wanted, fits func(Level) bool) (_ Reached, ok bool) {
	have := Reached{Seq: w.Seq, Level: w.Level}
	if w.Level == Warm { // a process that has loaded nothing cannot be parked: it starts as Shared, and Warm is answered later
		have = Reached{Seq: w.Seq - 1, Level: Shared}
	}
	if w.Level == Cold || !fits(have.Level) {
		return Reached{Seq: w.Seq, Refused: true}, false
	}
	return have, true
}

// Next returns what the agent does next for a pod with a record. It must be called after each step, after each change of the pod, and
// after a restart, once all records have been read.
//
// A raise is recorded before it is enforced, a reduction after. Both are reported last.
//
// fits reports whether the pod fits at a higher level than its own, given the records of all others on the slice and the pods that are
// bound there but have not started. A refusal is final: the controller has to want the level again.
func Next(i Instance, fits func(Level) bool) Step {
	w, have := i.Wanted, i.Record
	switch {
	case i.Enforced == Unknown:
		return Step{Effect: Enforce, Level: have.Level}
	case w.Seq > have.Seq && w.Level != Cold && !waits(w, have):
		return answer(i, fits)
	case i.Enforced != have.Level:
		return Step{Effect: Enforce, Level: have.Level}
	case have.Seq != Fixed.Seq && i.Reached != have:
		return Step{Effect: Report, Record: have}
	}
	return Step{}
}

// waits reports whether parking the instance has to wait, because gateways may still send requests to it.
func waits(w Wanted, have Reached) bool { return w.Level == Warm && have.Level > Warm && !w.Drained }

// answer returns the next step for a Wanted that is not answered yet.
func answer(i Instance, fits func(Level) bool) Step {
	w, have := i.Wanted, i.Record
	refused := Reached{Seq: w.Seq, Level: have.Level, Refused: true, Memory: have.Memory, Host: have.Host}
	switch {
	case w.Level < have.Level && w.Level == Warm && i.CannotPark:
		return Step{Effect: Save, Record: refused}
	case w.Level < have.Level && i.Enforced > w.Level:
		return Step{Effect: Enforce, Level: w.Level}
	case w.Level > have.Level && !fits(w.Level):
		return Step{Effect: Save, Record: refused}
	}
	next := Reached{Seq: w.Seq, Level: w.Level}
	switch {
	case w.Level == have.Level:
		next.Memory, next.Host = have.Memory, have.Host
	case w.Level == Warm:
		next.Memory, next.Host = i.Kept, i.Host
	}
	return Step{Effect: Save, Record: next}
}
