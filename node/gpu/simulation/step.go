package simulation

import (
	"slices"
	"time"

	"github.com/gshare-dev/gshare/vgpu/device"
)

// update advances the simulation after a request and wakes the goroutines that wait for a change. The caller holds the lock.
func (s *Simulation) update() {
	if s.virtual {
		s.advanceClock()
	} else {
		s.advanceDevices()
		s.poke()
	}
	s.changed.Broadcast()
}

// advanceClock advances the virtual clock from event to event, until a thread computes or the time limit of Run is reached.
func (s *Simulation) advanceClock() {
	for {
		s.advanceDevices()
		if s.closed || s.isBusy() {
			return
		}
		at, ok := s.nextEventTime()
		if !ok || at > s.until {
			s.now = max(s.now, s.until)
			return
		}
		s.now = max(s.now, at)
		s.progress++
		s.advanceDevices()
		s.fire()
	}
}

// isBusy reports whether something keeps the virtual clock from advancing: a thread that computes, a frame that the token server has not
// handled, or a running timer function.
func (s *Simulation) isBusy() bool {
	return s.firing > 0 || s.inFlight != 0 || slices.ContainsFunc(s.threads, func(t *thread) bool { return t.asked == nil })
}

// advanceDevices advances the GPUs to the present time and replies to the threads whose wait is over, until nothing changes.
func (s *Simulation) advanceDevices() {
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

// record records the end of a kernel, if the work is its last wave, or of a copy, which uses no SMs.
func (s *Simulation) record(gpu int, w *device.Work) {
	p := s.processes[w.Stream.Process]
	if p == nil {
		return // the process ended before its kernel
	}
	if first := p.firstWaves[w]; first != nil {
		p.queued--
		if w.Width > 0 {
			s.totals[gpu].Kernels++
			s.totals[gpu].Time += w.End - first.Start
		} else {
			s.totals[gpu].Copies += w.End - first.Start
		}
		if w.Width > 0 && s.records {
			p.spans = append(p.spans, Span{first.At, first.Start, w.End, gpu})
		}
		delete(p.firstWaves, w)
	}
}

// nextEventTime returns the time of the next event that needs no request: a kernel's start or end, the end of a thread's wait, or an
// expiring timer. ok is false if there is none.
func (s *Simulation) nextEventTime() (at time.Duration, ok bool) {
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
