package tokenserver

import (
	"slices"
	"time"

	"github.com/gshare-dev/gshare/vgpu/api/tokenwire"
	"github.com/gshare-dev/gshare/vgpu/share"
	"github.com/gshare-dev/gshare/vgpu/token"
)

// VGPU describes one vGPU of a container to the server.
type VGPU struct {
	share.Share
	Slice *Slice
	UUID  string // UUID of the slice
	Index int    // device ordinal in the container

	// Elastic selects class elastic: SMs move between the request and the limit, by tokens of thread blocks.
	Elastic  bool
	Priority share.Priority // priority class of an elastic share; empty is best-effort
}

// guaranteed returns the part of each window that a process may use without a server. An elastic share has the SMs of its limit, for
// as much of the time as makes up its request.
func (v VGPU) guaranteed() share.PerMille {
	if !v.Elastic {
		return v.QuotaRequest
	}
	return max(1, v.SMRequest*share.Whole/v.SMLimit)
}

// vgpu is one share in service: a container's part of one slice.
type vgpu struct {
	VGPU
	id      token.ID
	page    page[tokenwire.ContainerPage]
	usage   usage
	leased  leasedSessions
	clients []*clientState // in the order of their turns
	blockState
	timeState
}

// hasWaiting reports whether a process of the vGPU waits for its turn.
func (v *vgpu) hasWaiting() bool {
	return slices.ContainsFunc(v.clients, func(c *clientState) bool { return c.waiting })
}

// detach removes a process and releases its part of the container's memory. It first pauses the process, which may still be alive if
// only its connection was closed.
func (v *vgpu) detach(c *clientState, now time.Duration) {
	if !v.Slice.server.closed.Load() {
		c.setState(tokenwire.Pause, now)
	}
	v.clients = without(v.clients, c)
	if v.running == c {
		v.running = nil
	}
	subtract(&v.page.at.Memory, c.client.at.Memory.Swap(0)) // swapped: a process that reconnects adds its memory again
	if len(v.clients) == 0 {
		v.page.at.Memory.Store(0)
	}
	c.close()
}

func without(clients []*clientState, c *clientState) []*clientState {
	return slices.DeleteFunc(clients, func(other *clientState) bool { return other == c })
}

// leasedSessions holds the sessions of an earlier server whose processes may still run on their lease. A session ends when its process
// reconnects, and all of them end with the lease.
type leasedSessions struct {
	sessions []uint64
	until    time.Duration
}

func newLeasedSessions(sessions []uint64, until time.Duration) leasedSessions {
	return leasedSessions{slices.Clone(sessions), until}
}

func (l *leasedSessions) any() bool { return len(l.sessions) > 0 }

func (l *leasedSessions) end(session uint64) {
	l.sessions = slices.DeleteFunc(l.sessions, func(s uint64) bool { return s == session })
}

func (l *leasedSessions) expire(now time.Duration) {
	if now >= l.until {
		l.sessions = nil
	}
}
