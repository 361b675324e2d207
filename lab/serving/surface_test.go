package serving

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/gshare-dev/gshare/vgpu/profile"
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

func TestSurface(t *testing.T) {
	s := newSurface([]profile.Point{point(1, 200, 40*ms), point(1, 600, 20*ms), point(4, 200, 100*ms), point(4, 600, 44*ms)})
	for _, c := range []struct {
		batch int
		sm    share.PerMille
		want  time.Duration
	}{
		{1, 200, 40 * ms}, {1, 600, 20 * ms}, {1, 400, 30 * ms}, {1, 1000, 20 * ms},
		{1, 100, 80 * ms}, // half the SMs of the least measured take twice as long
		{2, 200, 60 * ms}, {2, 600, 28 * ms}, {4, 600, 44 * ms},
	} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			if got := s.latency(c.batch, c.sm); (got - c.want).Abs() > time.Microsecond {
				t.Errorf("batch %d on %d: %v, want %v", c.batch, c.sm, got, c.want)
			}
		})
	}
	if got := s.largestBatch(600, 28*ms); got != 2 {
		t.Errorf("the largest batch within 28 ms is %d, want 2", got)
	}
	if got := s.fewestSMs(1, 1000, 30*ms); got != 400 {
		t.Errorf("%d per mille are enough for 30 ms, want 400", got)
	}
	if got := s.fewestSMs(4, 500, ms); got != 500 {
		t.Errorf("%d per mille where nothing is enough, want the limit", got)
	}
}

// However noisy the measurements: more SMs are never slower, a larger batch never faster, and enough is enough.
func TestSurfaceIsMonotone(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	for range 50 {
		var points []profile.Point
		for _, batch := range []int{1, 2, 8} {
			for range 1 + random.IntN(4) {
				points = append(points, point(batch, share.PerMille(1+random.IntN(1000)), time.Duration(1+random.IntN(100))*ms))
			}
		}
		s := newSurface(points)
		for batch := 1; batch <= 8; batch++ {
			for sm := share.PerMille(5); sm <= share.Whole; sm += 5 {
				takes := s.latency(batch, sm)
				if takes > s.latency(batch, sm-5) || batch > 1 && takes < s.latency(batch-1, sm) {
					t.Fatalf("batch %d on %d takes %v", batch, sm, takes)
				}
				if enough := s.fewestSMs(batch, sm, 30*ms); s.latency(batch, enough) > 30*ms && enough != sm {
					t.Fatalf("batch %d: %d are not enough", batch, enough)
				}
			}
		}
	}
}

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
