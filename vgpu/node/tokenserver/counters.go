package tokenserver

import "sync/atomic"

// Reason is a kind of refusal.
type Reason int

// Why connections are refused or cut off.
const (
	Stranger  Reason = iota // not a process of the container
	Malformed               // a frame that cannot be read
	Misplaced               // a frame that may not come at this point
	TooMany                 // more connections than a container may have
	TooFast                 // more frames a second than a connection may send
	Silent                  // no HELLO in time
	Gone                    // the container is being taken out of service
	Outdated                // a hook that cannot do what its share needs
	reasons
)

// String names the reason as a metric does.
func (r Reason) String() string {
	return [...]string{"stranger", "malformed", "misplaced", "too_many", "too_fast", "silent", "gone", "outdated"}[r]
}

// counters count since the server's start.
type counters struct {
	sessions, reconnects atomic.Uint64
	refused              [reasons]atomic.Uint64
}

// Counters is what a server has counted since its start.
type Counters struct {
	Sessions   uint64 // that were opened, reconnects among them
	Reconnects uint64 // by processes that had a session before
	Refused    map[Reason]uint64
}

// Counters gives the counts, also the zeros among them.
func (s *Server) Counters() Counters {
	c := Counters{s.counted.sessions.Load(), s.counted.reconnects.Load(), map[Reason]uint64{}}
	for r := range reasons {
		c.Refused[r] = s.counted.refused[r].Load()
	}
	return c
}

// opened counts a session and gives its number.
func (c *counters) opened(again bool) uint64 {
	if again {
		c.reconnects.Add(1)
	}
	return c.sessions.Add(1)
}
