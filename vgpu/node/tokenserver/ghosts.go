package tokenserver

import (
	"slices"
	"time"
)

// ghosts are the sessions of an earlier server that may still run on its lease. Each ends when its process comes back,
// and all end with the lease.
type ghosts struct {
	sessions []uint64
	until    time.Duration
}

func newGhosts(sessions []uint64, until time.Duration) ghosts {
	return ghosts{slices.Clone(sessions), until}
}

func (g *ghosts) any() bool { return len(g.sessions) > 0 }

func (g *ghosts) end(session uint64) {
	g.sessions = slices.DeleteFunc(g.sessions, func(s uint64) bool { return s == session })
}

func (g *ghosts) expire(now time.Duration) {
	if now >= g.until {
		g.sessions = nil
	}
}
