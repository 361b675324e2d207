package planner

import (
	"math"
	"testing"
	"time"
)

// TestMeter: a rate is the mean over the span, known once the counter is, whatever falls or pauses there are.
func TestMeter(t *testing.T) {
	type look struct {
		at    int // seconds
		count uint64
	}
	for name, test := range map[string]struct {
		looks []look
		rate  float64
		known bool
	}{
		"none":                    {nil, 0, false},
		"one":                     {[]look{{0, 5}}, 0, false},
		"too short":               {[]look{{0, 5}, {59, 100}}, 0, false},
		"as long as the span":     {[]look{{0, 40}, {60, 100}}, 1, true},
		"longer":                  {[]look{{0, 0}, {100, 500}}, 5, true},
		"what was before":         {[]look{{0, 0}, {60, 6000}, {120, 6060}}, 1, true},
		"in between":              {[]look{{0, 0}, {50, 500}, {70, 500}, {100, 500}, {120, 500}}, 0, true},
		"a fall":                  {[]look{{0, 100}, {60, 200}, {65, 3}}, 0, false},
		"a fall, and on":          {[]look{{0, 100}, {60, 200}, {65, 3}, {125, 63}}, 1, true},
		"a look too soon is none": {[]look{{0, 0}, {60, 60}, {60, 1000}}, 1, true},
	} {
		t.Run(name, func(t *testing.T) {
			var m meter
			start := time.Unix(1e9, 0)
			for _, l := range test.looks {
				m.observe(l.count, start.Add(time.Duration(l.at)*time.Second), time.Minute)
			}
			if rate, known := m.rate(time.Minute); known != test.known || math.Abs(rate-test.rate) > 1e-9 {
				t.Errorf("%v %v, want %v %v", rate, known, test.rate, test.known)
			}
		})
	}
	t.Run("bounded", func(t *testing.T) {
		var m meter
		for i := range 100_000 {
			m.observe(uint64(i), time.Unix(0, 0).Add(time.Duration(i)*10*time.Millisecond), time.Minute)
		}
		if n := len(m.samples); n > samplesPerSpan+2 {
			t.Errorf("%d samples", n)
		}
	})
}
