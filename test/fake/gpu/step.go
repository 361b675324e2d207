package gpu

import (
	"slices"
	"time"

	"github.com/gshare-dev/gshare/lab/device"
)

// settle processes the consequences of a request.
func (s *Simulation) settle() {
	if s.virtual {
		s.run()
	} else {
		s.step()
		s.poke()
	}
	s.changed.Broadcast()
}

// run advances the virtual clock as far as it may go.
func (s *Simulation) run() {
	for {
		s.step()
		if s.closed || s.anyoneRuns() {
			return
		}
		at, ok := s.next()
		if !ok || at > s.until {
			s.now = max(s.now, s.until)
			return
		}
		s.now = max(s.now, at)
		s.progress++
		s.step()
		s.fire()
	}
}

// anyoneRuns reports whether something keeps the virtual clock from advancing: a thread that computes, a frame on its way, or the
// function of a timer.
func (s *Simulation) anyoneRuns() bool {
	return s.firing > 0 || s.inFlight != 0 || slices.ContainsFunc(s.threads, func(t *thread) bool { return t.asked == nil })
}

// step advances the devices to the present time and answers the threads whose wait is over, until nothing changes.
func (s *Simulation) step() {
	for again := true; again; {
		again = false
		for i, d := range s.devices {
			for _, w := range d.Advance(s.time()) {
				s.record(i, w)
			}
		}
		for _, t := range s.threads {
			if t.asked != nil && s.serveOne(t) {
				again = true
			}
		}
	}
}

func (s *Simulation) record(gpu int, w *device.Work) {
	if w.Width > 0 {
		p := s.processes[w.Stream.Process-1]
		p.queued--
		p.spans = append(p.spans, Span{w.At, w.Start, w.End, gpu})
	}
}

// next returns the time of the next event without a request: on a device, for a thread that waits, or of a timer.
func (s *Simulation) next() (at time.Duration, ok bool) {
	earliest := func(t time.Duration) {
		if !ok || t < at {
			at, ok = t, true
		}
	}
	for _, d := range s.devices {
		if t, some := d.NextEvent(); some {
			earliest(t)
		}
	}
	for _, t := range s.threads {
		r := t.asked
		if r == nil {
			continue
		}
		if r.at > s.now {
			earliest(r.at)
		} else if until := time.Duration(r.a); (r.op == opSleep || r.op == opWaitWord) && until > s.now {
			earliest(until)
		}
	}
	for _, t := range s.timers {
		if t.set {
			earliest(t.at)
		}
	}
	return at, ok
}
