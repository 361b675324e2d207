package tokenserver

import (
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
	Busy      time.Duration // of the last second
	Used      share.Bytes   // of device memory
	Running   bool          // holds a token, and a process runs under it
	Waiting   int           // processes that wait for their turn
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
	status.Used = share.Bytes(v.page.at.Memory.Load())
	for _, s := range v.seats {
		if s.waiting {
			status.Waiting++
		}
		status.Processes = append(status.Processes, ProcessStatus{
			PID: s.pid, Launches: s.client.at.Launches.Load(), Memory: share.Bytes(s.client.at.Memory.Load()),
			Running: s.running, Waiting: s.waiting,
		})
	}
	return status
}
