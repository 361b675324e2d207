package supervisor

import (
	"slices"
	"time"
)

// Decide returns what to do about a slice's MPS daemon after an observation. now must not decrease from call to call.
func (s *Supervisor) Decide(now time.Time, o Observation) Decision {
	d := s.decideDaemon(now, o)
	d.NonMPS = s.confirmNonMPS(o.NonMPS)
	if d.Closed == "" && len(d.NonMPS) > 0 {
		d.Closed = "processes run without MPS"
	}
	return d
}

// decideDaemon returns the action for the daemon and whether the slice takes new containers, without regard to processes that bypass MPS.
func (s *Supervisor) decideDaemon(now time.Time, o Observation) Decision {
	silent := s.silent.update(now, o.Daemon == Silent)
	fault := s.fault.update(now, o.Daemon == Answers && o.Fault)
	healthy := s.healthy.update(now, o.Daemon == Answers && !o.Fault)
	if s.healthy.on && healthy >= s.config.Settled {
		s.delay = s.config.FirstDelay
	}
	switch {
	case o.Daemon == Absent:
		return s.decideAbsent(now, o)
	case o.Daemon == Silent:
		return s.decideSilent(now, o, silent)
	case o.Fault:
		return s.decideFault(now, o, fault)
	case !o.Wanted:
		s.resetDelay()
		return Decision{Action: unlessClients(o.Clients, Stop), Closed: "the slice is not shared"}
	}
	return Decision{}
}

// resetDelay allows the next start at once, since a healthy daemon that is stopped has not failed.
func (s *Supervisor) resetDelay() {
	s.delay, s.nextStart = s.config.FirstDelay, time.Time{}
}

// decideAbsent decides when no daemon runs. It starts one when the slice is shared, but not while clients of the earlier daemon run: they
// keep its server alive, and a second server on the slice is not supported.
func (s *Supervisor) decideAbsent(now time.Time, o Observation) Decision {
	switch {
	case !o.Wanted:
		return Decision{Closed: "the slice is not shared"}
	case o.Clients > 0:
		return Decision{Closed: "clients of a daemon that has ended still run"}
	case now.Before(s.nextStart):
		return Decision{Closed: "the daemon ended lately"}
	}
	s.nextStart = now.Add(s.delay)
	s.delay = min(2*s.delay, s.config.LastDelay)
	return Decision{Action: Start, Closed: "the daemon is being started"}
}

// decideSilent decides when the daemon does not answer. It kills the daemon if that has lasted for too long and there are no clients.
func (s *Supervisor) decideSilent(now time.Time, o Observation, lasted time.Duration) Decision {
	d := Decision{Closed: "the daemon does not answer"}
	if lasted >= s.config.Patience {
		d.Action = unlessClients(o.Clients, Kill)
		s.silent.since = now // it is repeated after as long
	}
	return d
}

// decideFault decides after a GPU fault, which has failed all MPS clients: the server serves again once they have ended. After the grace
// period it ends the remaining clients or, if there are none, stops the daemon.
func (s *Supervisor) decideFault(now time.Time, o Observation, lasted time.Duration) Decision {
	d := Decision{Closed: "a fault has failed its clients"}
	if lasted >= s.config.Grace {
		if d.Action = Stop; o.Clients > 0 {
			d.Action = EndClients
		}
		s.fault.since = now
	}
	return d
}

// unlessClients returns the action if the daemon has no clients, else Nothing.
func unlessClients(clients int, a Action) Action {
	if clients > 0 {
		return Nothing
	}
	return a
}

// confirmNonMPS returns the processes that ran without MPS in this and in the previous observation, since a process that is just connecting
// to MPS may appear in one.
func (s *Supervisor) confirmNonMPS(nonMPS []int) (confirmed []int) {
	before := s.nonMPS
	s.nonMPS = map[int]bool{}
	for _, pid := range nonMPS {
		s.nonMPS[pid] = true
		if before[pid] {
			confirmed = append(confirmed, pid)
		}
	}
	slices.Sort(confirmed)
	return slices.Compact(confirmed)
}
