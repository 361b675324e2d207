package gpu

import (
	"slices"
	"time"

	"github.com/gshare-dev/gshare/lab/device"
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
	_, _ = t.conn.Write(answer.encode()) // a peer that is gone shows at the next read
	return true
}

// replyTo returns the reply to a thread's request, and whether it can be sent now.
func (s *Simulation) replyTo(p *process, r *request) (answer reply, due bool) {
	switch r.op {
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
