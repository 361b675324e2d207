package gpu

import (
	"slices"
	"time"

	"github.com/gshare-dev/gshare/lab/device"
)

// enqueue submits the work in a request to the GPUs. It returns false, and submits nothing, if an earlier batch of the process is missing.
func (s *Simulation) enqueue(p *process, r *request) bool {
	if len(r.works) == 0 {
		return p.batches >= r.batch
	}
	if p.batches+1 != r.batch {
		return false
	}
	p.batches++
	for _, w := range r.works {
		s.submit(p, w)
	}
	r.works = nil
	return true
}

// enqueueLate submits the batches of a process that had to wait for an earlier batch, sent on another connection.
func (s *Simulation) enqueueLate(p *process) {
	p.late = slices.DeleteFunc(p.late, func(r *request) bool { return s.enqueue(p, r) })
}

func (s *Simulation) submit(p *process, w work) {
	if int(w.device) >= len(s.devices) {
		return
	}
	made := &device.Work{Stream: device.Stream{Process: p.id, ID: w.stream}, At: w.at}
	if !s.virtual {
		made.At = s.time()
	}
	switch w.kind {
	case kindKernel:
		made.Duration, made.Width = w.duration, w.width
		p.queued++
	case kindRecord:
		p.addEvent(w.event, made, s.now)
	case kindAfter:
		made.After = p.events[w.event]
	}
	s.devices[w.device].Submit(made)
}

// eventRetention is how long a CUDA event can be queried after it has completed.
const eventRetention = 5 * time.Second

// addEvent stores a CUDA event, and removes those that completed longer than eventRetention ago.
func (p *process) addEvent(id uint64, event *device.Work, now time.Duration) {
	p.events[id] = event
	p.recorded = append(p.recorded, id)
	for old := p.events[p.recorded[0]]; old.Done && old.End < now-eventRetention; old = p.events[p.recorded[0]] {
		delete(p.events, p.recorded[0])
		p.recorded = p.recorded[1:]
	}
}
