package tokenserver

import (
	"slices"
	"time"

	"github.com/gshare-dev/gshare/vgpu/api/tokenwire"
	"github.com/gshare-dev/gshare/vgpu/share"
	"github.com/gshare-dev/gshare/vgpu/token"
)

// VGPU describes one vGPU of a container, a share of a slice, to the token server.
type VGPU struct {
	share.Share
	Slice *Slice
	UUID  string // UUID of the slice
	Index int    // device ordinal in the container
	// Imports is how much memory of the slice's model store the container may map beside its share's memory.
	Imports share.Bytes

	// Elastic selects class elastic: SMs move between the request and the limit, by tokens of thread blocks.
	Elastic  bool
	Priority share.Priority // priority class of an elastic share; empty is best-effort
}

// guaranteedFraction returns the fraction of each window in which a process may run while the server is unreachable. A process of an elastic
// share then uses all SMs of its limit, so the fraction is its SM request divided by its SM limit. A share that gets only what others leave
// may not run at all, since without a server nothing tells which time is idle.
func (v VGPU) guaranteedFraction(idleOnly bool) share.PerMille {
	switch {
	case idleOnly:
		return 0
	case !v.Elastic:
		return v.QuotaRequest
	}
	return max(1, v.SMRequest*share.Whole/v.SMLimit)
}

// vgpu is the state of one vGPU of a container: one share on one slice.
type vgpu struct {
	VGPU
	id       token.ID
	idle     bool // it gets only the time that others leave, see Container.Reshape
	parked   bool
	withheld share.Bytes // memory that is taken back while it is parked, see Container.Park; part of the sum on the page
	peak     share.Bytes // most memory that its processes were seen to hold
	page     page[tokenwire.ContainerPage]
	usage    usage
	leased   leasedSessions
	clients  []*clientState // in the order of their turns
	blockState
	timeState
}

// writeGuarantee writes to the pages of the processes what they are guaranteed while the server is unreachable.
func (v *vgpu) writeGuarantee() {
	for _, c := range v.clients {
		if !c.detached {
			c.server.at.Guaranteed.Store(uint32(v.guaranteedFraction(v.idle)))
			c.server.at.PartStart.Store(uint64(v.partStart))
		}
	}
}

// hasWaiting reports whether a process of the vGPU waits for a token.
func (v *vgpu) hasWaiting() bool {
	return slices.ContainsFunc(v.clients, func(c *clientState) bool { return c.waiting })
}

// detachClient pauses, for good, a process whose connection has ended. Its memory and unfinished work still count until removeClient.
func (v *vgpu) detachClient(c *clientState, now time.Duration) {
	if !v.Slice.server.closed.Load() {
		c.setState(tokenwire.Pause, now)
	}
	c.detached, c.waiting = true, false
	if v.running == c {
		v.running = nil
	}
}

// removeClient removes a process from the vGPU. If the process has ended (ended), it also subtracts the process's memory from the
// container's total; a process that has reconnected has already moved its memory from this page to its new one. Otherwise the total stays as
// the other processes know it.
func (v *vgpu) removeClient(c *clientState, ended bool) {
	v.clients = without(v.clients, c)
	if ended {
		subtractBounded(&v.page.at.Memory, c.client.at.Memory.Load(), uint64(v.withheld))
		subtractBounded(&v.page.at.Imported, c.client.at.Imported.Load(), 0)
	}
	if ended && len(v.clients) == 0 {
		v.page.at.Memory.Store(uint64(v.withheld))
		v.page.at.Imported.Store(0)
	}
	c.close()
}

func without(clients []*clientState, c *clientState) []*clientState {
	return slices.DeleteFunc(clients, func(other *clientState) bool { return other == c })
}

// leasedSessions holds the sessions of an earlier server whose processes may still run on their lease. A session ends when its process
// reconnects or the lease expires.
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
