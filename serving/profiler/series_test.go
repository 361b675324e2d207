package profiler

import (
	"errors"
	"math"
	"testing"
	"time"
)

// TestJudge: a program counts as it is once it has launched as many kernels in each of three windows, and no sooner.
func TestJudge(t *testing.T) {
	const every = 5 * time.Second
	for name, test := range map[string]struct {
		length   time.Duration
		launches func(second int) int // in this second
		want     time.Duration        // after which it is known; 0: never
		rate     float64
		spread   float64
		failed   bool
	}{
		"steady":                             {15 * time.Second, func(int) int { return 40 }, 20 * time.Second, 40, 0, false},
		"steady, looked at longer":           {60 * time.Second, func(int) int { return 40 }, 65 * time.Second, 40, 0, false},
		"loads for a minute":                 {15 * time.Second, func(s int) int { return 40 * min(s/60, 1) }, 80 * time.Second, 40, 0, false},
		"is faster after half a time":        {15 * time.Second, func(s int) int { return 40 + 40*min(s/12, 1) }, 30 * time.Second, 80, 0, false},
		"never steady":                       {15 * time.Second, func(s int) int { return 40 + 40*(s/5%2) }, 125 * time.Second, 160.0 / 3, 0.5, false},
		"a step of 30 s, in windows of 5 s":  {15 * time.Second, func(s int) int { return 300 * (1 - min(s%30, 1)) }, 12*time.Minute + every, 10, 1, false},
		"a step of 10 s, in windows of 20 s": {60 * time.Second, func(s int) int { return 300 * (1 - min(s%10, 1)) }, 65 * time.Second, 30, 0, false},
		"launches nothing":                   {15 * time.Second, func(int) int { return 0 }, 10 * time.Minute, 0, 0, true},
		"hangs":                              {15 * time.Second, func(s int) int { return 40 * (1 - min(s/14, 1)) }, 615 * time.Second, 0, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			p := Progress{Length: test.length}
			s, sum := Series{}, uint64(0)
			for now := time.Duration(0); now <= time.Hour; now += time.Second {
				if now%every == 0 {
					c := Count{now, sum}
					if n := len(s.Counts); n > 0 && s.Counts[n-1].Launches < sum {
						if s.Changed = now; s.First == nil {
							s.First = &c
						}
					}
					s.Counts = append(s.Counts, c)
					s.Counts = s.Counts[max(0, len(s.Counts)-13):]
					got, done, err := p.Judge(s)
					var failed *FailedError
					if errors.As(err, &failed) != test.failed && err != nil || done && test.failed {
						t.Fatalf("after %v: %+v, %v", now, got, err)
					}
					if done || err != nil {
						if now != test.want || math.Abs(got.Point.Throughput-test.rate) > 0.2*test.spread*test.rate+1e-9 || math.Abs(got.Confidence-test.spread) > 0.1 {
							t.Errorf("after %v: %+v", now, got)
						}
						return
					}
				}
				sum += uint64(test.launches(int(now / time.Second)))
			}
			if test.want != 0 {
				t.Error("does not end")
			}
		})
	}
}

// TestJudgeNothing: without a count nothing is known.
func TestJudgeNothing(t *testing.T) {
	p := Progress{Length: 15 * time.Second}
	if _, done, err := p.Judge(Series{}); done || err != nil {
		t.Error(done, err)
	}
}
