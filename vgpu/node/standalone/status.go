package standalone

import (
	"github.com/gshare-dev/gshare/vgpu/api/control"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// Status returns the devices and runs of the machine, as gshare ps shows them.
func (n *Node) Status() control.Status {
	runs := n.runs.snapshot()
	status := control.Status{Devices: []control.Device{}, Runs: []control.Run{}}
	loaded := n.devices.loaded(runs)
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
	for _, r := range runs {
		status.Runs = append(status.Runs, n.enforcement.addObserved(r.status()))
	}
	return status
}
