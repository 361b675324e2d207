package gpu

import (
	"slices"
	"time"

	"github.com/gshare-dev/gshare/lab/device"
)

// enqueue gives the work of a request to the devices, in the order of the process's batches.
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

// enqueueLate takes in work that came along with an announcement, before an earlier batch on another connection.
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

// remembered is how long after it happened an event may be asked for.
const remembered = 5 * time.Second

// keep remembers an event, and forgets the oldest.
func (p *process) keep(id uint64, event *device.Work, now time.Duration) {
	p.events[id] = event
	p.recorded = append(p.recorded, id)
	for old := p.events[p.recorded[0]]; old.Done && old.End < now-remembered; old = p.events[p.recorded[0]] {
		delete(p.events, p.recorded[0])
		p.recorded = p.recorded[1:]
	}
}
