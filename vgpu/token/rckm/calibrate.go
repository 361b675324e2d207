package rckm

import "github.com/gshare-dev/gshare/vgpu/share"

const (
	epoch  = 200 // ticks with launches for which a peak is remembered: one to two times so long
	enough = 20  // ticks with launches that make a peak: the first may be the end of one
)

// calibration measures what the slice is worth for one member: the most that it launches in a tick counts as its request, so
// that tokens of the request hold nobody back who has no neighbours (D19, DI-69).
type calibration struct {
	peak, earlier int64 // of this epoch and of the one before
	ticks         int   // in this epoch
}

// observe takes in the launches of one tick. A member that its tokens hold back shows its tokens, not what it could do: the
// peak stays, and grows if it has its request.
func (c *calibration) observe(blocks int64, held bool, m *member) {
	if blocks == 0 {
		return
	}
	if known := c.known(); held && known > 0 {
		blocks = max(blocks, known)
		if m.last >= m.part(m.Request) {
			blocks = max(blocks, grow(known))
		}
	}
	if c.ticks++; c.ticks == epoch {
		c.earlier, c.peak, c.ticks = c.peak, 0, 0
	}
	c.peak = min(max(c.peak, blocks), most/int64(share.Whole))
}

func (c *calibration) known() int64 { return max(c.peak, c.earlier) }

// saturation is MaxTokens for a request.
func (c *calibration) saturation(request share.PerMille) int64 {
	if c.earlier > 0 || c.ticks >= enough {
		return c.known() * int64(share.Whole) / int64(request)
	}
	return fallback
}
