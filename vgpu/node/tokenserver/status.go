package tokenserver

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// Status is the state of a container, for metrics and status reports.
type Status struct {
	ID          string
	Connections int
	VGPUs       []VGPUStatus
}

// VGPUStatus is the state of one vGPU of a container. Its measured values are those that the processes report.
type VGPUStatus struct {
	share.Share
	UUID           string
	Index          int
	Busy           time.Duration  // device time of the last second
	Total          time.Duration  // device time since the container is in service
	Tokens         uint64         // tokens granted since then
	Waits          Waits          // waits for tokens since then
	LeasedSessions int            // sessions of an earlier server that may still run
	Used           share.Bytes    // device memory in use
	CurrentSMLimit share.PerMille // below SMLimit after a Resize
	CurrentSMs     share.PerMille // SMs that its latest token is worth
	Blocks         int64          // blocks of its latest token, in class elastic
	Running        bool           // a process runs under a token
	Waiting        int            // number of processes that wait for a token
	Processes      []ProcessStatus
}

// ProcessStatus is the state of one process on a vGPU.
type ProcessStatus struct {
	PID      int
	Launches uint64
	Memory   share.Bytes
	Running  bool
	Waiting  bool
}

// Snapshot returns the state of all containers, sorted by ID.
func (s *Server) Snapshot() []Status {
	var all []Status
	for _, c := range s.sortedContainers() {
		all = append(all, c.Status())
	}
	return all
}

// Status returns the state of a container: its connections, and the use, tokens and processes of each vGPU.
func (c *Container) Status() Status {
	status := Status{ID: c.ID, Connections: c.Connections()}
	for _, v := range c.vgpus {
		status.VGPUs = append(status.VGPUs, v.status())
	}
	return status
}

func (v *vgpu) status() VGPUStatus {
	v.Slice.mu.Lock()
	defer v.Slice.mu.Unlock()
	status := VGPUStatus{Share: v.Share, UUID: v.UUID, Index: v.Index, Running: v.running != nil}
	if v.page.at == nil {
		return status // the container was closed meanwhile
	}
	status.Busy = v.usage.recent.total(v.Slice.server.Clock.Now())
	status.Total, status.Tokens, status.Waits = v.usage.busy, v.usage.tokens, v.usage.waits
	status.LeasedSessions = len(v.leased.sessions)
	status.Used = loadBytes(&v.page.at.Memory)
	status.CurrentSMLimit, status.CurrentSMs = v.SMLimit, v.SMRequest
	if v.Elastic {
		status.CurrentSMLimit, status.CurrentSMs, status.Blocks = v.limit, v.sms, v.token.Amount
		status.Running = slices.ContainsFunc(v.clients, func(c *clientState) bool { return c.open })
	}
	for _, c := range v.clients {
		if c.waiting {
			status.Waiting++
		}
		status.Processes = append(status.Processes, ProcessStatus{
			PID: c.pid, Launches: c.client.at.Launches.Load(), Memory: loadBytes(&c.client.at.Memory),
			Running: c.running, Waiting: c.waiting,
		})
	}
	return status
}

// loadBytes reads an amount of memory that processes write. A negative amount, from a race of two processes or a forged value, counts as 0.
func loadBytes(word *atomic.Uint64) share.Bytes { return max(0, share.Bytes(word.Load())) }
