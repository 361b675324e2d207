package tokenserver

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// Status is what a container is and does.
type Status struct {
	ID          string
	Connections int
	VGPUs       []VGPUStatus
}

// VGPUStatus is one vGPU of a container. What is measured is as its processes report it.
type VGPUStatus struct {
	share.Share
	UUID      string
	Index     int
	Busy      time.Duration  // of the last second
	Total     time.Duration  // busy since the container is in service
	Tokens    uint64         // granted since then
	Waits     Waits          // for tokens since then
	Awaited   int            // sessions of an earlier server that may still run
	Used      share.Bytes    // of device memory
	LimitNow  share.PerMille // of SMs; below SMLimit after a Resize
	SMsNow    share.PerMille // what its latest token is worth
	Blocks    int64          // of its latest token, in class elastic
	Running   bool           // holds a token, and a process runs under it
	Waiting   int            // processes that wait for their turn
	Processes []ProcessStatus
}

// ProcessStatus is one process on a vGPU.
type ProcessStatus struct {
	PID      int
	Launches uint64
	Memory   share.Bytes
	Running  bool
	Waiting  bool
}

// Snapshot describes all containers, by ID.
func (s *Server) Snapshot() []Status {
	var all []Status
	for _, c := range s.list() {
		all = append(all, c.Status())
	}
	return all
}

// Status describes the container.
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
		return status // closed meanwhile
	}
	status.Busy = v.used.second(v.Slice.server.Clock.Now())
	status.Total, status.Tokens, status.Waits, status.Awaited = v.busy, v.tokens, v.waited, len(v.ghosts.sessions)
	status.Used = held(&v.page.at.Memory)
	status.LimitNow, status.SMsNow = v.SMLimit, v.SMRequest
	if v.Elastic {
		status.LimitNow, status.SMsNow, status.Blocks = v.limit, v.sms, v.token.Amount
		status.Running = slices.ContainsFunc(v.seats, func(s *seat) bool { return s.open })
	}
	for _, s := range v.seats {
		if s.waiting {
			status.Waiting++
		}
		status.Processes = append(status.Processes, ProcessStatus{
			PID: s.pid, Launches: s.client.at.Launches.Load(), Memory: held(&s.client.at.Memory),
			Running: s.running, Waiting: s.waiting,
		})
	}
	return status
}

// held reads an amount of memory that processes write: with its highest bit set it is below zero for a moment, or a lie.
func held(word *atomic.Uint64) share.Bytes { return max(0, share.Bytes(word.Load())) }
