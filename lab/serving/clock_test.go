package serving

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/gshare-dev/gshare/serving/rules/profile"
	"github.com/gshare-dev/gshare/vgpu/share"
)

const ms = time.Millisecond

// point returns a measurement of a batch on sm per mille of the SMs.
func point(batch int, sm share.PerMille, takes time.Duration) profile.Point {
	return profile.Point{
		Model: "m", Batch: batch, Resource: profile.Resource{SM: sm, Quota: share.Whole, Device: "GPU"},
		Mean: takes, P95: takes, P99: takes, Throughput: float64(batch) / takes.Seconds(),
	}
}

// surface returns the surface through points that have one.
func surface(points []profile.Point) *profile.Surface {
	s, err := profile.NewSurface(points)
	if err != nil {
		panic(err)
	}
	return s
}

// TestClockKeepsOrder checks that events run in the order of their times, and equal ones in the order in which they were set.
func TestClockKeepsOrder(t *testing.T) {
	c, random := &clock{}, rand.New(rand.NewPCG(2, 2))
	last, order, set := time.Duration(-1), 0, 0
	for range 500 {
		set++
		at, mine := time.Duration(random.IntN(50)), set
		c.schedule(at, func() {
			if c.now < last || c.now == last && mine < order {
				t.Fatalf("event %d at %v after %d at %v", mine, c.now, order, last)
			}
			last, order = c.now, mine
		})
	}
	for _, ok := c.nextTime(); ok; _, ok = c.nextTime() {
		c.runNext()
	}
	c.schedule(last-10, func() {}) // the past is now
	if at, _ := c.nextTime(); at != last {
		t.Errorf("an event of the past is set at %v, want %v", at, last)
	}
}
