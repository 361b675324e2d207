package gpu

import (
	"slices"
	"time"

	"github.com/gshare-dev/gshare/lab/device"
)

// enqueue submits the work of a request to the devices, in the order of the batches of the process. It returns false if an earlier
// batch is missing.
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

// enqueueLate submits work that arrived with an announcement, before an earlier batch on another connection.
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
		p.keep(w.event, made, s.now)
	case kindAfter:
		made.After = p.events[w.event]
	}
	s.devices[w.device].Submit(made)
}

// remembered is how long an event can be queried after it has happened.
const remembered = 5 * time.Second

// keep stores an event, and removes old ones.
func (p *process) keep(id uint64, event *device.Work, now time.Duration) {
	p.events[id] = event
	p.recorded = append(p.recorded, id)
	for old := p.events[p.recorded[0]]; old.Done && old.End < now-remembered; old = p.events[p.recorded[0]] {
		delete(p.events, p.recorded[0])
		p.recorded = p.recorded[1:]
	}
}
