package profile

import (
	"math"
	"testing"
	"time"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// onShare is a measurement of a server whose batches take 2 ms and 1 ms a row on half of the SMs, and as much longer as there are fewer.
func onShare(sm, quota share.PerMille, batch int) Point {
	mean := time.Duration(2+batch) * time.Millisecond * 500 / time.Duration(min(sm, 500)) * time.Duration(share.Whole/quota)
	return Point{Model: "m", Resource: Resource{SM: sm, Quota: quota, Device: "H200"}, Batch: batch, Mean: mean, P95: mean, P99: mean * 11 / 10}
}

// TestFitShare: the fitted curves give back what was measured, within the batches and for the SMs that were, and nothing else.
func TestFitShare(t *testing.T) {
	// What a growth search leaves: 8 rows are too slow on 10 % of the SMs, 16 on 20 %.
	grown := []Point{onShare(100, 1000, 1), onShare(100, 1000, 2), onShare(100, 1000, 4), onShare(200, 1000, 4), onShare(200, 1000, 8), onShare(300, 1000, 8)}
	for name, test := range map[string]struct {
		points []Point
		batch  int
		want   []share.PerMille
	}{
		"all curves":                  {grown, 4, []share.PerMille{100, 200, 300}},
		"not those of small batches":  {grown, 8, []share.PerMille{200, 300}},
		"one size":                    {[]Point{onShare(200, 1000, 1), onShare(400, 1000, 1)}, 1, []share.PerMille{200, 400}},
		"in any order":                {[]Point{grown[5], grown[4], grown[1], grown[0], grown[3], grown[2]}, 8, []share.PerMille{200, 300}},
		"not what was with a quota":   {append([]Point{onShare(500, 500, 8)}, grown...), 8, []share.PerMille{200, 300}},
		"one size twice is one size":  {[]Point{onShare(200, 1000, 4), onShare(200, 1000, 4)}, 4, []share.PerMille{200}},
		"larger batches than planned": {grown, 2, []share.PerMille{100, 200, 300}},
	} {
		t.Run(name, func(t *testing.T) {
			m, e, err := FitShare(test.points, test.batch, 0.1, 1000*share.MiB+1)
			if err != nil || e > 0.001 || m.MaxBatch != test.batch || len(m.Curves) != len(test.want) || m.Memory.Memory(test.batch) != 1001*share.MiB {
				t.Fatalf("%+v, %v, %v", m, e, err)
			}
			for i, c := range m.Curves {
				if c.SM != test.want[i] {
					t.Errorf("curves %+v, want those of %v", m.Curves, test.want)
				}
				for _, p := range test.points {
					got := float64(m.Latency(p.Batch, i, share.Whole).Mean)
					if p.Resource.SM == c.SM && p.Resource.Quota == share.Whole && math.Abs(got/p.Mean.Seconds()-1) > 0.001 {
						t.Errorf("%d rows on %d: %v, measured %v", p.Batch, c.SM, got, p.Mean)
					}
				}
				for batch := 1; batch <= test.batch; batch++ { // never faster than it is
					if got, is := float64(m.Latency(batch, i, share.Whole).Mean), onShare(c.SM, 1000, batch).Mean.Seconds(); got < 0.999*is {
						t.Errorf("%d rows on %d: %v, is %v", batch, c.SM, got, is)
					}
				}
			}
			if math.Abs(m.Tail.Slope-1.1) > 0.001 {
				t.Errorf("tail %+v, want that of the measurements", m.Tail)
			}
		})
	}
}

// TestFitShareTail: the tail is fitted where shares with a part of the time were measured.
func TestFitShareTail(t *testing.T) {
	points := []Point{onShare(200, 1000, 1), onShare(200, 1000, 4)}
	for _, batch := range []int{1, 2, 4} {
		p := onShare(200, 500, batch)
		untuned := Share{Curves: []ShareCurve{{200, Linear{0.0025, 0.005}}}, Tail: Linear{Slope: 1}, Window: 0.01, MaxBatch: 4}
		p.P99 = time.Duration(1.3 * float64(untuned.Latency(batch, 0, 500).P99) * float64(time.Second))
		p.Mean = p.P99 / 2
		points = append(points, p)
	}
	m, _, err := FitShare(points, 4, 0.01, share.MiB)
	if err != nil || math.Abs(m.Tail.Slope*0.05+m.Tail.Intercept-1.3*0.05) > 0.002 {
		t.Errorf("%+v, %v", m, err)
	}
}

func TestFitShareRefuses(t *testing.T) {
	for name, test := range map[string]struct {
		points []Point
		batch  int
	}{
		"nothing":       {nil, 1},
		"too large":     {[]Point{onShare(100, 1000, 4)}, 8},
		"a quota alone": {[]Point{onShare(100, 500, 4)}, 4},
		"another GPU":   {[]Point{onShare(100, 1000, 4), {Model: "m", Resource: Resource{SM: 100, Quota: 1000, Device: "A100"}, Batch: 4, Mean: 1}}, 4},
		"vCPUs":         {[]Point{{Model: "m", Resource: Resource{CPU: 1000}, Batch: 4, Mean: 1}}, 4},
		"no time":       {[]Point{{Model: "m", Resource: Resource{SM: 100, Quota: 1000}, Batch: 4}}, 4},
		"no size":       {[]Point{onShare(100, 1000, 4)}, 0},
	} {
		if m, _, err := FitShare(test.points, test.batch, 0.1, share.MiB); err == nil {
			t.Errorf("%s: %+v", name, m)
		}
	}
}
