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

func (v *vgpu) status() VGPUStatus {
	v.Slice.mu.Lock()
	defer v.Slice.mu.Unlock()
	status := VGPUStatus{Share: v.Share, UUID: v.UUID, Index: v.Index, IdleOnly: v.idle, Running: v.running != nil}
	if v.page.at == nil {
		return status // the container was closed meanwhile
	}
	status.Busy = v.usage.recent.total(v.Slice.server.Clock.Now())
	status.Total, status.Launches, status.Tokens, status.Waits = v.usage.busy, v.usage.launches, v.usage.tokens, v.usage.waits
	status.Overruns = v.Slice.time.Overruns(v.id)
	status.LeasedSessions = len(v.leased.sessions)
	v.observePeak()
	status.Used, status.Peak = v.used(), v.peak
	status.Parked, status.Kept = v.parked, v.Memory-v.withheld
	status.CurrentSMLimit, status.CurrentSMs = v.SMLimit, v.SMRequest
	if v.Elastic {
		status.CurrentSMLimit, status.CurrentSMs, status.Blocks = v.limit, v.sms, v.token.Amount
		status.Running = slices.ContainsFunc(v.clients, func(c *clientState) bool { return c.open != token.NoWork })
	}
	for _, c := range v.clients {
		if c.detached {
			continue // like any process without a session, it is found by its use of the device
		}
		if c.waiting {
			status.Waiting++
		}
		if c.client.at.SelfPaced.Load() != 0 {
			status.SelfPaced++
		}
		status.Processes = append(status.Processes, ProcessStatus{
			PID: c.pid, Launches: c.client.at.Launches.Load(), Memory: loadBytes(&c.client.at.Memory),
			Running: c.running, Waiting: c.waiting,
		})
	}
	return status
}

// quotaNow returns the part of the window that a vGPU is guaranteed now.
func (v *vgpu) quotaNow() share.PerMille {
	v.Slice.mu.Lock()
	defer v.Slice.mu.Unlock()
	return v.QuotaRequest
}

func (v *vgpu) withheldBytes() share.Bytes {
	v.Slice.mu.Lock()
	defer v.Slice.mu.Unlock()
	return v.withheld
}

// park takes back the memory that is not in use by adding it to the sum on the container's page. Comparing and adding are one atomic step: a
// process that allocates at the same time either finds the memory taken or is counted.
func (v *vgpu) park() error {
	v.Slice.mu.Lock()
	defer v.Slice.mu.Unlock()
	switch {
	case v.parked:
		return nil
	case v.leased.any():
		return ErrUseUnknown
	}
	for {
		sum := v.page.at.Memory.Load()
		kept := (min(max(0, share.Bytes(sum)), v.Memory) + share.MiB - 1) / share.MiB * share.MiB // processes write any sum
		if kept >= v.Memory {
			return ErrNothingFree
		}
		if v.page.at.Memory.CompareAndSwap(sum, sum+uint64(v.Memory-kept)) {
			v.parked, v.withheld = true, v.Memory-kept
			return nil
		}
	}
}

// hold parks a vGPU that has no processes yet.
func (v *vgpu) hold(kept share.Bytes) {
	v.parked, v.withheld = true, v.Memory-min(kept, v.Memory)
	v.page.at.Memory.Store(uint64(v.withheld))
}

func (v *vgpu) unpark() {
	v.Slice.mu.Lock()
	defer v.Slice.mu.Unlock()
	subtractBounded(&v.page.at.Memory, uint64(v.withheld), 0)
	v.parked, v.withheld = false, 0
}

// used returns the memory that the processes hold. The caller holds the slice's lock.
func (v *vgpu) used() share.Bytes { return max(0, loadBytes(&v.page.at.Memory)-v.withheld) }

// observePeak records the most memory that the processes have held. It is called whenever they report device time, so it sees what a kernel
// needs, but not memory that is allocated and freed without running one. Processes write the sum, and may claim more than they can have.
func (v *vgpu) observePeak() { v.peak = max(v.peak, min(v.used(), v.Memory)) }
