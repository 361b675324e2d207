package device

import (
	"time"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// Process identifies a process that is an MPS client of the device.
type Process int

// Stream identifies a CUDA stream of a process. Its work runs in the order of submission.
type Stream struct {
	Process Process
	ID      uint64
}

// Work is one entry of a stream: a kernel, a copy between host and device if Width is 0, or a marker (a CUDA event) if Duration is 0 too.
type Work struct {
	Stream   Stream
	At       time.Duration  // when the host submits it; it starts no earlier
	Duration time.Duration  // on Width SMs; grows if the kernel runs on fewer, or is slowed down
	Width    share.PerMille // SMs that it can fill
	Least    share.PerMille // fewest free SMs with which it starts; 0: as many as it can fill
	Follows  bool           // the next wave of the kernel before it in its stream: it keeps that kernel's order
	After    *Work          // work of another stream that must complete first; may be nil

	Done       bool
	Start, End time.Duration // valid when Done

	width   share.PerMille // SMs on which it runs, at most Width
	order   uint64         // of arrival
	started bool
}

// limitTo sets the width on which a kernel runs: Width, but at most the SM cap of its process.
func (w *Work) limitTo(limit share.PerMille) {
	w.width = w.Width
	w.narrow(limit)
}

// narrow reduces the width of a kernel to at most the given one. Its duration grows in proportion, rounded up.
func (w *Work) narrow(width share.PerMille) {
	if w.width > width {
		w.Duration = (w.Duration*time.Duration(w.width) + time.Duration(width) - 1) / time.Duration(width)
		w.width = width
	}
}

// narrowToFree narrows a kernel to the free SMs if they suffice to start it, since blocks run on whichever SMs are free.
func (w *Work) narrowToFree(free share.PerMille) {
	if w.Least > 0 && free >= min(w.Least, w.width) {
		w.narrow(free)
	}
}

// isReady reports whether the work waits for nothing but SMs.
func (w *Work) isReady(now time.Duration) bool {
	return w.At <= now && (w.After == nil || w.After.Done)
}

// Usage is how much of the device a process has used: kernels, busy time and SM-time.
type Usage struct {
	Kernels int           // completed kernels
	Busy    time.Duration // time with at least one running kernel
	SMTime  time.Duration // sum over completed kernels of duration times per mille of SMs
}

// Usage returns what a process had used at the last Advance. Busy time includes running kernels; the rest counts completed ones.
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
