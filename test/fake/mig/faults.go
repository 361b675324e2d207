package mig

// Fault describes how an injected failure of a driver call behaves.
type Fault struct {
	Err   error         // returned error; nil: that of the device
	After bool          // the call takes effect before it fails, if the device allows it
	Hang  chan struct{} // the call, and with it the whole driver, blocks until Hang is closed; nil: it does not block
	Began chan struct{} // closed when the call begins to block
}

// faults counts the calls to the GPU, and holds the faults to inject into later ones.
type faults struct {
	calls  int // so far
	byCall map[int]Fault
}

// Fail injects a fault into a future call, where 0 is the next one. Each list of instances and each create or destroy counts as a call.
func (g *GPU) Fail(call int, f Fault) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.faults.byCall == nil {
		g.faults.byCall = map[int]Fault{}
	}
	g.faults.byCall[g.faults.calls+call] = f
}

// call counts a call to the GPU and executes act, or the fault that is injected for the call.
func (f *faults) call(act func() error) error {
	fault, ok := f.byCall[f.calls]
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
		_ = act() // the result is lost
	}
	return fault.Err
}
