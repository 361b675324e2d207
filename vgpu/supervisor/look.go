package supervisor

import (
	"slices"
	"time"
)

// Look gives the orders for what is seen now. Times must not fall.
func (s *Supervisor) Look(now time.Time, l Look) Orders {
	o := s.daemon(now, l)
	o.Bare = s.certain(l.Bare)
	if o.Closed == "" && len(o.Bare) > 0 {
		o.Closed = "processes run without MPS"
	}
	return o
}

func (s *Supervisor) daemon(now time.Time, l Look) Orders {
	silent := s.silent.look(now, l.Daemon == Silent)
	fault := s.fault.look(now, l.Daemon == Answers && l.Fault)
	well := s.well.look(now, l.Daemon == Answers && !l.Fault)
	if s.well.on && well >= s.config.Settled {
		s.delay = s.config.FirstDelay
	}
	switch {
	case l.Daemon == Absent:
		return s.absent(now, l)
	case l.Daemon == Silent:
		return s.silence(now, l, silent)
	case l.Fault:
		return s.faulted(now, l, fault)
	case !l.Wanted:
		s.forgive()
		return Orders{Do: unless(l.Clients, Stop), Closed: "the slice is not shared"}
	}
	return Orders{}
}

// forgive counts a daemon that is well when it is ended as none that failed.
func (s *Supervisor) forgive() {
	s.delay, s.next = s.config.FirstDelay, time.Time{}
}

// absent starts a daemon, but not while clients of the last one run: they keep their server, and a second one beside it is
// not defined.
func (s *Supervisor) absent(now time.Time, l Look) Orders {
	switch {
	case !l.Wanted:
		return Orders{Closed: "the slice is not shared"}
	case l.Clients > 0:
		return Orders{Closed: "clients of a daemon that has ended still run"}
	case now.Before(s.next):
		return Orders{Closed: "the daemon ended lately"}
	}
	s.next = now.Add(s.delay)
	s.delay = min(2*s.delay, s.config.LastDelay)
	return Orders{Do: Start, Closed: "the daemon is being started"}
}

func (s *Supervisor) silence(now time.Time, l Look, lasted time.Duration) Orders {
	o := Orders{Closed: "the daemon does not answer"}
	if lasted >= s.config.Patience {
		o.Do = unless(l.Clients, Kill)
		s.silent.since = now // once more after as long
	}
	return o
}

// faulted waits: all clients have got the error, and when they have ended the server serves again by itself. Those that do
// not end keep the others out.
func (s *Supervisor) faulted(now time.Time, l Look, lasted time.Duration) Orders {
	o := Orders{Closed: "a fault has failed its clients"}
	if lasted >= s.config.Grace {
		if o.Do = Stop; l.Clients > 0 {
			o.Do = EndClients
		}
		s.fault.since = now
	}
	return o
}

// unless gives an action that would hurt clients only where there are none.
func unless(clients int, a Action) Action {
	if clients > 0 {
		return Nothing
	}
	return a
}

// certain are the processes that were seen at the last look too: one that is just becoming a client may be seen once.
func (s *Supervisor) certain(bare []int) (certain []int) {
	before := s.bare
	s.bare = map[int]bool{}
	for _, pid := range bare {
		s.bare[pid] = true
		if before[pid] {
			certain = append(certain, pid)
		}
	}
	slices.Sort(certain)
	return slices.Compact(certain)
}
