package profile

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/gshare-dev/gshare/vgpu/share"
)

const ms = time.Millisecond

// point returns a measurement of a batch on sm per mille of the SMs.
func point(batch int, sm share.PerMille, takes time.Duration) Point {
	return Point{
		Model: "m", Batch: batch, Resource: Resource{SM: sm, Quota: share.Whole, Device: "GPU"},
		Mean: takes, P95: takes, P99: takes, Throughput: float64(batch) / takes.Seconds(),
	}
}

func surface(t *testing.T, points ...Point) *Surface {
	t.Helper()
	s, err := NewSurface(points)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestSurface checks latencies at measurements, between them and beyond them.
func TestSurface(t *testing.T) {
	s := surface(t, point(1, 200, 40*ms), point(1, 600, 20*ms), point(4, 200, 100*ms), point(4, 600, 44*ms))
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
			if got := s.Latency(c.batch, c.sm); (got - c.want).Abs() > time.Microsecond {
				t.Errorf("batch %d on %d: %v, want %v", c.batch, c.sm, got, c.want)
			}
		})
	}
	if got := surface(t, point(1, 500, 30*ms), point(1, 500, 50*ms), point(1, 500, 10*ms), point(1, 1000, 10*ms)).Latency(1, 750); got != 30*ms {
		t.Errorf("between 10 ms and the slowest of three measurements: %v, want 30 ms", got)
	}
	if got := s.LargestBatch(600, 28*ms); got != 2 {
		t.Errorf("the largest batch within 28 ms is %d, want 2", got)
	}
	if got := s.FewestSMs(1, 1000, 30*ms); got != 400 {
		t.Errorf("%d per mille are enough for 30 ms, want 400", got)
	}
	if got := s.FewestSMs(4, 500, ms); got != 500 {
		t.Errorf("%d per mille where nothing is enough, want the limit", got)
	}
}

// TestSurfaceIsMonotone checks that, however noisy the measurements are, more SMs are never slower, a larger batch is never faster, no more SMs
// than needed are named, and the largest batch is the largest.
func TestSurfaceIsMonotone(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	for range 50 {
		var points []Point
		for _, batch := range []int{1, 2, 8} {
			for range 1 + random.IntN(4) {
				points = append(points, point(batch, share.PerMille(1+random.IntN(1000)), time.Duration(1+random.IntN(100))*ms))
			}
		}
		s := surface(t, points...)
		for batch := 1; batch <= 8; batch++ {
			for sm := share.PerMille(5); sm <= share.Whole; sm += 5 {
				takes := s.Latency(batch, sm)
				if takes > s.Latency(batch, sm-5) || batch > 1 && takes < s.Latency(batch-1, sm) {
					t.Fatalf("batch %d on %d takes %v", batch, sm, takes)
				}
				if enough := s.FewestSMs(batch, sm, 30*ms); s.Latency(batch, enough) > 30*ms && enough != sm {
					t.Fatalf("batch %d: %d are not enough", batch, enough)
				}
			}
		}
	}
}

// TestSurfaceRefuses checks measurements that have no surface.
func TestSurfaceRefuses(t *testing.T) {
	first := point(1, 200, 40*ms)
	for name, change := range map[string]func(p *Point){
		"another model":  func(p *Point) { p.Model = "n" },
		"another quota":  func(p *Point) { p.Resource.Quota = 500 },
		"another device": func(p *Point) { p.Resource.Device = "other" },
		"an instance":    func(p *Point) { p.Resource = Resource{Slice: "1g.10gb", Device: "GPU"} },
		"no latency":     func(p *Point) { p.Mean = 0 },
		"a huge batch":   func(p *Point) { p.Batch = MaxBatch + 1 },
	} {
		t.Run(name, func(t *testing.T) {
			second := point(2, 200, 60*ms)
			change(&second)
			if _, err := NewSurface([]Point{first, second}); err == nil || !strings.Contains(err.Error(), "points[1]") {
				t.Errorf("got %v, want an error of points[1]", err)
			}
		})
	}
	if _, err := NewSurface(nil); err == nil {
		t.Error("a surface through nothing")
	}
}
