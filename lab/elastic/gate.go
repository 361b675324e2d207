package elastic

import (
	"time"

	"github.com/gshare-dev/gshare/lab/device"
)

// gate decides which clients may launch. The server behind it reads the clients every 5 ms, and at the times that advance returns.
type gate interface {
	may(k int) bool                                                                // reports whether client k may launch
	launched(now time.Duration, k int, blocks int64)                               // records a launch
	advance(now time.Duration, c []*client, d *device.Device) (next time.Duration) // must be called again at next
}

// tick is the period of the servers.
const tick = 5 * time.Millisecond

// open lets every client launch: only the caps of MPS share the GPU.
type open struct{}

func (open) may(int) bool                                                           { return true }
func (open) launched(time.Duration, int, int64)                                     {}
func (open) advance(now time.Duration, _ []*client, _ *device.Device) time.Duration { return never }

// priority is a gate like that of TGS: the first client may always launch; the rate of the other one halves in each tick in which
// the first has work, and otherwise grows by a hundredth of what fills the GPU.
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
