package rckm

import "github.com/gshare-dev/gshare/vgpu/share"

const (
	run   = 4   // ticks: a rate is the mean of so many in a row
	epoch = 200 // rates: a peak is remembered for one to two of them
)

// calibration measures what the slice is worth for one member: the highest rate at which it launches counts as its request,
// so that tokens of the request hold nobody back who has no neighbours (D19, DI-69).
type calibration struct {
	ticks         [run]int64
	held          [run]bool
	next, in      int   // of the ring; ticks of the run
	peak, earlier int64 // of this epoch and of the one before
	rates         int   // in this epoch
}

// observe takes in the launches of one tick. A member that its tokens hold back shows its tokens, not what it could do: the
// peak stays, and grows if it has its limit.
func (c *calibration) observe(blocks int64, held bool, m *member) {
	if blocks == 0 {
		c.in = 0
		return
	}
	c.ticks[c.next], c.held[c.next] = blocks, held
	c.next, c.in = (c.next+1)%run, min(c.in+1, run)
	if c.in == run {
		c.add(c.mean(m))
	}
}

func (c *calibration) mean(m *member) int64 {
	sum, held := int64(0), false
	for k := range run {
		sum += c.ticks[k]
		held = held || c.held[k]
	}
	rate := sum / run
	known := max(c.peak, c.earlier)
	switch {
	case held && known > 0 && m.last >= m.part(m.Limit):
		rate = max(rate, grow(known))
	case held:
		rate = max(rate, known)
	}
	return rate
}

func (c *calibration) add(rate int64) {
	if c.rates++; c.rates == epoch {
		c.earlier, c.peak, c.rates = c.peak, 0, 0
	}
	c.peak = min(max(c.peak, rate, 1), most/int64(share.Whole))
}

// saturation is MaxTokens for a request.
func (c *calibration) saturation(request share.PerMille) int64 {
	if rate := max(c.peak, c.earlier); rate > 0 {
		return rate * int64(share.Whole) / int64(request)
	}
	return fallback
}
