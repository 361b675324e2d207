package simulation

import (
	"slices"
	"time"

	"github.com/gshare-dev/gshare/vgpu/device"
)

// queueMax is the number of unfinished kernels beyond which a process's launches block, as with the full queue of a real driver.
const queueMax = 1024

// serveOne submits the work of a waiting thread to the devices and, if its wait is over, sends the reply. It reports whether anything has
// changed.
func (s *Simulation) serveOne(t *thread) (progress bool) {
	r := t.asked
	s.enqueueLate(t.process)
	progress = len(r.works) > 0
	if !s.enqueue(t.process, r) {
		return false
	}
	if r.op.waits() && (s.time() < r.at || t.process.queued > queueMax) {
		return progress
	}
	answer, ok := s.replyTo(t.process, r)
	if !ok {
		return progress
	}
	answer.now, answer.wakes, answer.virtual = s.time(), s.wakes, s.virtual
	t.asked = nil
	_, _ = t.conn.Write(answer.encode()) // if the peer is gone, the next read fails
	return true
}

// replyTo returns the reply to a thread's request, and whether it can be sent now.
func (s *Simulation) replyTo(p *process, r *request) (answer reply, due bool) {
	switch r.op {
	case opHello:
		return reply{value: uint64(s.start.UnixNano())}, true // by which a client recognizes the simulation
	case opSleep:
		return reply{}, s.time() >= time.Duration(r.a)
	case opWaitWord:
		if s.wakes != r.b {
			return reply{}, true
		}
		return reply{status: statusTimeout}, s.time() >= time.Duration(r.a)
	case opWaitStream:
		return reply{}, s.idle(p, r.a)
	case opWaitDevice:
		return reply{}, int(r.a) >= len(s.devices) || s.devices[r.a].IsIdle(p.id)
	case opQueryStream:
		if s.idle(p, r.a) {
			return reply{}, true
		}
		return reply{status: statusNotReady}, true
	case opWaitEvent, opQueryEvent:
		w := p.events[r.a]
		switch {
		case w == nil:
			return reply{}, true
		case w.Done:
			return reply{value: uint64(w.End)}, true
		}
		return reply{status: statusNotReady}, r.op == opQueryEvent
	}
	return reply{}, true
}

func (s *Simulation) idle(p *process, stream uint64) bool {
	return !slices.ContainsFunc(s.devices, func(d *device.Device) bool { return d.LastWork(device.Stream{Process: p.id, ID: stream}) != nil })
}

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
		p.queued++
		s.submitWaves(p, w, made)
		return
	case kindRecord:
		p.addEvent(w.event, made, s.now)
	case kindAfter:
		made.After = p.events[w.event]
	}
	s.devices[w.device].Submit(made)
}

// wavesMax limits the waves of a kernel, each of which is an event of the simulation.
const wavesMax = 10_000

// submitWaves submits a kernel as its waves: sets of thread blocks that fill the SMs one after another. Between two waves, work of processes
// with a higher priority may run.
func (s *Simulation) submitWaves(p *process, w work, first *device.Work) {
	waves := time.Duration(min(max(1, w.waves), wavesMax))
	first.Duration, first.Width = w.duration/waves, w.width
	last := first
	s.devices[w.device].Submit(first)
	for range waves - 1 {
		last = &device.Work{Stream: first.Stream, At: first.At, Duration: first.Duration, Width: first.Width, Follows: true}
		s.devices[w.device].Submit(last)
	}
	p.firstWaves[last] = first
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
