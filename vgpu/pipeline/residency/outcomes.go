package residency

import (
	"time"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// outcomes counts requests that finished, and those that were late although they could have been in time.
type outcomes struct {
	list  []outcome
	count int // of the late ones
}

type outcome struct {
	at   time.Duration
	late bool
}

func (o *outcomes) add(now, window time.Duration, late bool) {
	o.forget(now - window)
	o.list = append(o.list, outcome{now, late})
	if late {
		o.count++
	}
}

// late is the part of the window's requests that were late.
func (o *outcomes) late(now, window time.Duration) share.PerMille {
	if o.forget(now - window); len(o.list) == 0 {
		return 0
	}
	return share.PerMille(o.count * int(share.Whole) / len(o.list))
}

func (o *outcomes) forget(before time.Duration) {
	gone := 0
	for gone < len(o.list) && o.list[gone].at <= before {
		if o.list[gone].late {
			o.count--
		}
		gone++
	}
	o.list = o.list[gone:]
}
