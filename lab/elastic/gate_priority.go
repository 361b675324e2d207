package elastic

import (
	"time"

	"github.com/gshare-dev/gshare/lab/device"
)

// priority is in the manner of TGS: the first client launches at will; the other may launch at a rate that halves in each
// tick in which the first is at work, and else grows by a hundredth of what fills the GPU.
type priority struct {
	rate, full, credit int64 // blocks a tick
	check              time.Duration
}

func newPriority(c []*client) *priority {
	full := c[1].Saturation(1000, tick)
	return &priority{rate: full, full: full}
}

func (p *priority) may(k int) bool { return k == 0 || p.credit > 0 }

func (p *priority) launched(_ time.Duration, k int, n int64) {
	if k == 1 {
		p.credit -= n
	}
}

func (p *priority) advance(now time.Duration, c []*client, _ *device.Device) time.Duration {
	if now < p.check {
		return p.check
	}
	p.check = now + tick
	if c[0].busy() {
		p.rate /= 2
	} else {
		p.rate += p.full / 100
	}
	p.rate = min(max(p.rate, p.full/1000, 1), p.full)
	p.credit = min(p.credit, 0) + p.rate
	return p.check
}
