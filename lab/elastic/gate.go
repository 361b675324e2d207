package elastic

import (
	"time"

	"github.com/gshare-dev/gshare/lab/device"
)

// gate is a simulated token server, which decides which clients may launch kernels. It reads the state of the clients every 5 ms, and at
// the times that advance returns.
type gate interface {
	may(k int) bool                                                                // reports whether client k may launch
	launched(now time.Duration, k int, blocks int64)                               // records a launch
	advance(now time.Duration, c []*client, d *device.Device) (next time.Duration) // must be called again at next
}

// tick is the period in which the simulated token servers read the state of their clients.
const tick = 5 * time.Millisecond

// openGate lets every client launch: only the SM caps of MPS divide the GPU.
type openGate struct{}

func (openGate) may(int) bool                                                           { return true }
func (openGate) launched(time.Duration, int, int64)                                     {}
func (openGate) advance(now time.Duration, _ []*client, _ *device.Device) time.Duration { return never }

// priorityGate is a token server like that of TGS. The first client may always launch; the rate of the other client halves in each tick in
// which the first has work, and otherwise grows by a hundredth of the rate that fills the GPU.
type priorityGate struct {
	rate, full, credit int64 // blocks a tick
	check              time.Duration
}

func newPriorityGate(c []*client) *priorityGate {
	full := c[1].Saturation(1000, tick)
	return &priorityGate{rate: full, full: full}
}

func (p *priorityGate) may(k int) bool { return k == 0 || p.credit > 0 }

func (p *priorityGate) launched(_ time.Duration, k int, n int64) {
	if k == 1 {
		p.credit -= n
	}
}

func (p *priorityGate) advance(now time.Duration, c []*client, _ *device.Device) time.Duration {
	if now < p.check {
		return p.check
	}
	p.check = now + tick
	if c[0].isBusy() {
		p.rate /= 2
	} else {
		p.rate += p.full / 100
	}
	p.rate = min(max(p.rate, p.full/1000, 1), p.full)
	p.credit = min(p.credit, 0) + p.rate
	return p.check
}
