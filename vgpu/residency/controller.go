package residency

// Created returns the Wanted of a new instance, Hot or Shared.
func Created(l Level) Wanted { return Wanted{Seq: 1, Level: max(l, Shared)} }

// CreatedInTurn returns the Wanted of a new instance of class swap, which starts when it gets its first turn.
func CreatedInTurn() Wanted { return Wanted{Seq: 1, Level: Warm} }

// TakeBack returns the Wanted that takes the turn away from an instance of class swap that has not started. Unlike Change it does not wait for the
// agent, because only the agent's records count such an instance as more than parked. Should the instance start nevertheless, it is parked then.
func TakeBack(w Wanted) Wanted { return Wanted{Seq: w.Seq + 1, Level: Warm} }

// Change returns the Wanted that moves an instance to another level. It returns false if there is nothing to change, or if the agent has to answer
// first; try again once it has. w and r must be from one version of the pod, and the write must fail if either has changed since.
//
// An instance may be given up (Cold) at any time, and never comes back.
func Change(w Wanted, r Reached, to Level) (Wanted, bool) {
	switch {
	case to == w.Level || w.Level == Cold:
		return w, false
	case to == Cold:
	case to < w.Level && !r.Answers(w): // w may raise the level, and the agent may be about to carry that out
		return w, false
	case w.Drained && !r.Answers(w): // the agent may be parking the instance, and gateways would trust a raise
		return w, false
	}
	return Wanted{Seq: w.Seq + 1, Level: to}, true
}

// Action is the kind of a Task.
type Action int8

// The actions. Write writes Task.Wanted, if Wanted and Reached are still those that were reviewed. Replace creates an instance like the present one,
// under a name made of the pod's name and Wanted.Seq, so that it is created only once. Delete deletes the pod.
const (
	Nothing Action = iota
	Drain
	Write
	Replace
	Delete
)

// Task is what the controller does about an instance. For Drain, the controller asks all gateways until each of them has stopped, and
// then calls Review with drained set.
type Task struct {
	Action Action
	Wanted Wanted
}

// Review returns what the controller does next to bring an instance to the wanted level, or the wanted level back to the one that the instance has.
//
// replaced says that the replacement that Replace would create exists. drained says that every gateway has stopped sending requests to the pod for
// this Wanted.Seq; "every" refers to a consistent list of gateways that was made after the controller had read this Seq.
func Review(w Wanted, r Reached, replaced, drained bool) Task {
	switch {
	case w.Level == Cold && w.Drained:
		return Task{Action: Delete}
	case !w.Level.Serves() && !w.Drained && drained:
		w.Drained = true
		return Task{Write, w}
	case w.Level == Cold, w.Level == Warm && !w.Drained && !r.Answers(w):
		return Task{Action: Drain}
	case !r.Refused || !r.Answers(w):
		return Task{}
	case r.CannotPark(w):
		return Task{Write, Wanted{Seq: w.Seq + 1, Level: r.Level}}
	case !replaced:
		return Task{Action: Replace}
	}
	to := r.Level // Cold if the start was refused
	return Task{Write, Wanted{Seq: w.Seq + 1, Level: to}}
}
