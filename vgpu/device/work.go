package device

import (
	"time"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// Process identifies a process that is a client of the device.
type Process int

// Stream identifies a CUDA stream of a process. Its work runs in the order of submission.
type Stream struct {
	Process Process
	ID      uint64
}

// Work is one entry of a stream: a kernel, a copy between host and device if its width is 0, or a marker (a CUDA event) if it also has no
// duration.
type Work struct {
	Stream   Stream
	At       time.Duration  // time of its submission by the host; it starts no earlier
	Duration time.Duration  // at its full width
	Width    share.PerMille // SMs that it can fill
	Least    share.PerMille // SMs that suffice to start if fewer are free than it can fill; 0 if it needs all
	Follows  bool           // it is the next wave of the kernel before it in its stream, and keeps that kernel's order
	After    *Work          // work of another stream that must end first; nil if none

	Done       bool
	Start, End time.Duration // valid when Done

	width   share.PerMille // SMs that it runs on
	order   uint64         // of arrival
	started bool
}

// limitTo sets the width of a kernel, at most the SM cap of its process.
func (w *Work) limitTo(limit share.PerMille) {
	w.width = w.Width
	w.narrow(limit)
}

// narrow reduces the width of a kernel to the given one. Its duration grows in proportion, rounded up.
func (w *Work) narrow(width share.PerMille) {
	if w.width > width {
		w.Duration = (w.Duration*time.Duration(w.width) + time.Duration(width) - 1) / time.Duration(width)
		w.width = width
	}
}

// narrowToFree narrows a kernel to the free SMs if these suffice to start it, as blocks run on any SMs that are free.
func (w *Work) narrowToFree(free share.PerMille) {
	if w.Least > 0 && free >= min(w.Least, w.width) {
		w.narrow(free)
	}
}

// isReady reports whether the work waits for nothing but SMs.
func (w *Work) isReady(now time.Duration) bool {
	return w.At <= now && (w.After == nil || w.After.Done)
}

// Usage is what a process has used of the device: kernels, busy time and SM-time.
type Usage struct {
	Kernels int           // completed kernels
	Busy    time.Duration // time with at least one running kernel
	SMTime  time.Duration // of completed kernels, times per-mille of SMs
}

// Usage returns what a process has used until the last Advance, including the busy time of running kernels.
func (d *Device) Usage(p Process) Usage {
	who, ok := d.processes[p]
	if !ok {
		return Usage{}
	}
	use := who.use
	if who.kernels > 0 {
		use.Busy += d.now - who.since
	}
	return use
}

// IsIdle reports whether the process has neither running nor waiting work.
func (d *Device) IsIdle(p Process) bool {
	for s := range d.streams {
		if s.Process == p {
			return false
		}
	}
	return true
}
