package supervisor

import (
	"slices"
	"time"
)

// Decide returns the decision that follows from an observation. Times must not decrease from call to call.
func (s *Supervisor) Decide(now time.Time, o Observation) Decision {
	d := s.decideDaemon(now, o)
	d.NonMPS = s.confirm(o.NonMPS)
	if d.Closed == "" && len(d.NonMPS) > 0 {
		d.Closed = "processes run without MPS"
	}
	return d
}

// decideDaemon decides about the daemon, without regard to processes that run without MPS.
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
		return Decision{Action: withoutClients(o.Clients, Stop), Closed: "the slice is not shared"}
	}
	return Decision{}
}

// resetDelay lets the next start happen at once: a healthy daemon that is stopped has not failed.
func (s *Supervisor) resetDelay() {
	s.delay, s.nextStart = s.config.FirstDelay, time.Time{}
}

// decideAbsent starts a daemon, but not while clients of the last one run: they keep its server, and a second server beside it is not
// supported.
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

// decideSilent kills a daemon without clients that has been silent for too long.
func (s *Supervisor) decideSilent(now time.Time, o Observation, lasted time.Duration) Decision {
	d := Decision{Closed: "the daemon does not answer"}
	if lasted >= s.config.Patience {
		d.Action = withoutClients(o.Clients, Kill)
		s.silent.since = now // it is repeated after as long
	}
	return d
}

// decideFault waits: all clients have got the error, and the server serves again by itself when they have ended. After the grace period
// the clients that are left are ended, since they keep others out; without any, the daemon is stopped.
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

// withoutClients returns the action if there are no clients that it would harm, else Nothing.
func withoutClients(clients int, a Action) Action {
	if clients > 0 {
		return Nothing
	}
	return a
}

// confirm returns the processes that the last observation had too: one that is just becoming a client may show once.
func (s *Supervisor) confirm(nonMPS []int) (confirmed []int) {
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
