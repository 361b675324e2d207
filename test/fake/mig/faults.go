package mig

// Fault is how a call goes wrong.
type Fault struct {
	Err   error         // the answer; nil: that of the device
	After bool          // the call has acted, if the device let it; else it has not
	Hang  chan struct{} // the call waits until it is closed, with the whole driver; nil: it does not
	Began chan struct{} // closed when the call begins to wait
}

// faults are due on the calls to come.
type faults struct {
	calls int
	due   map[int]Fault
}

// Fail lets a call go wrong: the next one is 0. Lists and steps are calls.
func (g *GPU) Fail(call int, f Fault) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.faults.due == nil {
		g.faults.due = map[int]Fault{}
	}
	g.faults.due[g.faults.calls+call] = f
}

func (f *faults) pass(act func() error) error {
	fault, ok := f.due[f.calls]
	f.calls++
	if !ok {
		return act()
	}
	if fault.Hang != nil {
		close(fault.Began)
		<-fault.Hang
	}
	if fault.Err == nil {
		return act()
	}
	if fault.After {
		_ = act() // the answer is lost
	}
	return fault.Err
}
