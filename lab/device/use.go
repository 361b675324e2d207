package device

import "time"

// Use is what a process has got from the device.
type Use struct {
	Kernels int           // completed
	Busy    time.Duration // with at least one kernel running
	SMTime  time.Duration // of completed kernels, times per-mille of SMs
}

// Use returns what a process has got until the last Advance. The kernel that runs counts as busy time up to then.
func (d *Device) Use(p Process) Use {
	who, ok := d.processes[p]
	if !ok {
		return Use{}
	}
	use := who.use
	if who.kernels > 0 {
		use.Busy += d.now - who.since
	}
	return use
}

// Idle says that the process has nothing on the device, neither running nor waiting.
func (d *Device) Idle(p Process) bool {
	for s := range d.streams {
		if s.Process == p {
			return false
		}
	}
	return true
}
