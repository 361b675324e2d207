package turns

import (
	"time"

	"github.com/gshare-dev/gshare/serving/fleet"
)

// rateOver is the number of seconds over which Status.Rate is averaged.
const rateOver = 10

// count records once a second how many requests each function has received. The caller holds the mutex.
func (t *Turns) count(now time.Time) {
	if now.Sub(t.counted) < time.Second {
		return
	}
	t.counted = now
	for _, fn := range t.functions {
		fn.received = append(fn.received, t.Gateway.Load(fn.name).Received)
		fn.received = fn.received[max(0, len(fn.received)-rateOver-1):]
	}
}

// rate returns how many requests per second came in the last rateOver seconds.
func (fn *function) rate() float64 {
	last := len(fn.received) - 1
	if last < 1 {
		return 0
	}
	return float64(fn.received[last]-fn.received[0]) / float64(last)
}

// Status returns the states of all functions, in order. A function has a replica while its server is ready, whether or not it is its turn.
func (t *Turns) Status() []fleet.Status {
	t.mu.Lock()
	defer t.mu.Unlock()
	var all []fleet.Status
	for _, fn := range t.functions {
		l, server := t.Gateway.Load(fn.name), t.moves.stateOf(fn.name.String())
		s := fleet.Status{
			Name: fn.name, SLO: fn.object.Spec.SLO.Latency.Value(), P99: l.P99, Hit: float64(l.InTime) / float64(l.Answered+l.Refused-l.Invalid+l.Failed),
			Rate: fn.rate(), Share: wholeGPU(fn.object), Replicas: map[string]int{}, Ready: server.ready, Reason: "Idle", Message: server.message,
			Waiting: l.Waiting, InFlight: l.InFlight, Starts: server.starts, Failures: server.failures, GPUTime: server.used,
		}
		switch {
		case fn.turn != nil:
			s.Reason = "Serving"
		case server.starting:
			s.Reason = "Starting"
		case server.message != "":
			s.Reason = "Failing"
		case l.Waiting > 0:
			s.Reason = "Waiting"
		}
		switch {
		case server.ready:
			s.Replicas["ready"] = 1
		case server.starting:
			s.Replicas["starting"] = 1
		}
		all = append(all, s)
	}
	return all
}
