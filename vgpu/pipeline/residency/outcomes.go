package residency

import (
	"time"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// outcomes counts finished requests, and those that missed a deadline that they could have met, in a sliding window.
type deadlineOutcomes struct {
	list  []outcome
	count int // of late ones in list
}

// outcome is the end of one request.
type outcome struct {
	at   time.Duration
	late bool
}

// add records a finished request.
func (o *deadlineOutcomes) add(now, window time.Duration, late bool) {
	o.dropUntil(now - window)
	o.list = append(o.list, outcome{now, late})
	if late {
		o.count++
	}
}

// late returns the part of the window's requests that were late.
func (o *deadlineOutcomes) lateRatio(now, window time.Duration) share.PerMille {
	if o.dropUntil(now - window); len(o.list) == 0 {
		return 0
	}
	return share.PerMille(o.count * int(share.Whole) / len(o.list))
}

// forget drops the outcomes up to a time.
func (o *deadlineOutcomes) dropUntil(before time.Duration) {
	gone := 0
	for gone < len(o.list) && o.list[gone].at <= before {
		if o.list[gone].late {
			o.count--
		}
		gone++
	}
	o.list = o.list[gone:]
}
