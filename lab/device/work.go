package device

import (
	"time"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// Process is a client of the device with a context of its own.
type Process int

// Stream names a queue of a process. The work of one stream runs in the order of its submission.
type Stream struct {
	Process Process
	ID      uint64
}

// Work is one entry of a stream: a kernel, or a marker (an event) if it has no width.
type Work struct {
	Stream   Stream
	At       time.Duration  // when the host hands it over; it starts no earlier
	Duration time.Duration  // at its full width
	Width    share.PerMille // SMs that it can fill
	Least    share.PerMille // SMs that are enough to start on, if fewer are free than it can fill; 0: it waits for all
	Follows  bool           // the next wave of the kernel before it in its stream: its blocks came with those, and go before later ones
	After    *Work          // work of another stream that ends first; nil if none

	Done       bool
	Start, End time.Duration // valid when Done

	width   share.PerMille // SMs that it runs on
	order   uint64         // of arrival
	started bool
}

// fit narrows a kernel to the cap of its process.
func (w *Work) fit(limit share.PerMille) {
	w.width = w.Width
	w.narrow(limit)
}

// narrow puts a kernel on fewer SMs. The same work takes longer in proportion, rounded up.
func (w *Work) narrow(width share.PerMille) {
	if w.width > width {
		w.Duration = (w.Duration*time.Duration(w.width) + time.Duration(width) - 1) / time.Duration(width)
		w.width = width
	}
}

// mold narrows a kernel to what is free, where that is enough to start on: blocks go to whatever SMs have room.
func (w *Work) mold(free share.PerMille) {
	if w.Least > 0 && free >= min(w.Least, w.width) {
		w.narrow(free)
	}
}

// may says whether nothing but SMs keeps the work from starting.
func (w *Work) may(now time.Duration) bool { return w.At <= now && (w.After == nil || w.After.Done) }
