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
	After    *Work          // work of another stream that ends first; nil if none

	Done       bool
	Start, End time.Duration // valid when Done

	width   share.PerMille // SMs that it runs on
	order   uint64         // of arrival
	started bool
}

// fit narrows a kernel to the cap of its process. The same work on fewer SMs takes longer in proportion, rounded up.
func (w *Work) fit(limit share.PerMille) {
	w.width = min(w.Width, limit)
	if w.width > 0 && w.width < w.Width {
		w.Duration = (w.Duration*time.Duration(w.Width) + time.Duration(w.width) - 1) / time.Duration(w.width)
	}
}

// may says whether nothing but SMs keeps the work from starting.
func (w *Work) may(now time.Duration) bool { return w.At <= now && (w.After == nil || w.After.Done) }
