package residency

import (
	"time"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// deadlineOutcomes counts, in a sliding window, the finished requests and those among them that missed a deadline that was feasible when
// they arrived.
type deadlineOutcomes struct {
	list  []outcome
	count int // of late ones in list
}

type outcome struct {
	at   time.Duration
	late bool
}

func (o *deadlineOutcomes) add(now, window time.Duration, late bool) {
	o.dropUntil(now - window)
	o.list = append(o.list, outcome{now, late})
	if late {
		o.count++
	}
}

// lateRatio returns the fraction of the window's requests that were late, in per mille.
func (o *deadlineOutcomes) lateRatio(now, window time.Duration) share.PerMille {
	if o.dropUntil(now - window); len(o.list) == 0 {
		return 0
	}
	return share.PerMille(o.count * int(share.Whole) / len(o.list))
}

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
