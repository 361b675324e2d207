package residency

import "github.com/gshare-dev/gshare/vgpu/share"

// Instance is what the agent knows of one started pod. Wanted and Reached are from its view of the pod, which may be late, and after a
// restart older than before.
type Instance struct {
	Wanted  Wanted
	Reached Reached
	// Record is what grant.json says. The agent's book counts Record.Level, never what it sees in the pod.
	Record Reached
	// Enforced is what the token server or the parked process was last told; Cold before the container starts, Unknown after a restart.
	Enforced Level
	// Kept is what the parked process keeps of each device, and Host what it has in the memory of the host instead, once Warm is enforced.
	Kept, Host share.Bytes
	// CannotPark says that Warm, as Wanted has it, was tried and could not be enforced.
	CannotPark bool
}

// Effect is the kind of a Step.
type Effect int8

// The effects. Enforce changes the limits of the token server, or parks or wakes the process, and is complete when it returns: a parked
// process has given its memory back by then, and can allocate no more than it keeps. If it cannot be parked, what is enforced is Unknown.
// Save writes grant.json. Report writes the annotation, if Wanted and Reached are as in the agent's view.
const (
	Idle Effect = iota
	Enforce
	Save
	Report
)

// Step is one thing that the agent does for an instance: Enforce has a Level, Save and Report have a Record.
type Step struct {
	Effect Effect
	Level  Level
	Record Reached
}

// Start returns the record of a pod whose container is about to start (PreStartContainer), for its present Wanted. If there is no room,
// or the pod is to be deleted, ok is false: the start is refused and may be tried again, and the result is to be reported, not recorded.
// After it is recorded, Next says what to do before the container may start: everything until it returns Report or Idle.
//
// fits reports whether the pod fits at a level beside the records of all others on the slice.
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

// Next returns what the agent does next for a pod with a record. It is called again after each step, after each change of the pod, and
// after a restart, for which all records must have been read.
//
// A raise is recorded before it is enforced, a reduction after. Both are reported last.
//
// fits reports whether the pod fits at a higher level than its own beside the records of all others on the slice and the pods that are
// bound there and have not started. A refusal is final: the controller has to want the level again.
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

// waits reports whether an instance may not be parked yet, because gateways may send requests to it.
func waits(w Wanted, have Reached) bool { return w.Level == Warm && have.Level > Warm && !w.Drained }

// answer returns the next step for a Wanted that is not answered.
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
