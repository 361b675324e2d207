package standalone

import (
	"time"

	"github.com/gshare-dev/gshare/vgpu/api/control"
	"github.com/gshare-dev/gshare/vgpu/node/tokenserver"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// Status returns the devices and runs of the machine.
func (n *Node) Status() control.Status {
	n.mu.Lock()
	defer n.mu.Unlock()
	status := control.Status{Devices: []control.Device{}, Runs: []control.Run{}}
	loaded := n.usage()
	for i := range loaded.Slices {
		s, load := &loaded.Slices[i], &loaded.Loads[i]
		d := control.Device{
			UUID: string(s.ID), Profile: s.Profile, Model: s.Model, SMs: s.SMs, Memory: s.Memory, Promised: load.Memory(),
			Time: share.PerMille(load.Requested() / share.Area(share.Whole)), Simulated: n.MPS.Simulated,
		}
		if !load.Empty() {
			d.Class = string(load.Residents()[0].Class)
		}
		status.Devices = append(status.Devices, d)
	}
	for _, r := range n.runs {
		status.Runs = append(status.Runs, n.withBare(r.status()))
	}
	return status
}

func (r *run) status() control.Run {
	out := control.Run{
		ID: r.ID, Name: r.Name, UID: r.UID, PID: r.PID, Started: r.Started, Priority: string(r.Priority),
		Enforcement: r.Enforcement, VGPUs: []control.VGPU{},
	}
	for _, v := range r.container.Status().VGPUs {
		out.VGPUs = append(out.VGPUs, vgpuOf(v))
	}
	return out
}

func vgpuOf(v tokenserver.VGPUStatus) control.VGPU {
	out := control.VGPU{
		Device: v.UUID, SM: v.SMRequest, SMLimit: v.CurrentSMLimit, SMNow: v.CurrentSMs, Quota: v.QuotaRequest, QuotaLimit: v.QuotaLimit, Memory: v.Memory,
		UsedTime:   share.PerMille(v.Busy * time.Duration(share.Whole) / time.Second),
		UsedMemory: v.Used, Running: v.Running, Waiting: v.Waiting, Processes: []control.Process{},
	}
	for _, p := range v.Processes {
		out.Processes = append(out.Processes, control.Process{PID: p.PID, Launches: p.Launches, Memory: p.Memory})
	}
	return out
}
