package scaling

import (
	"testing"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// TestExpected: the number of instances is that which the mean rate needs where there is room, one more where there is none, and several more where each
// answers less than a request a second.
func TestExpected(t *testing.T) {
	for name, c := range map[string]struct {
		rate, throughput Rate
		least, most      float64
	}{
		"no requests":      {0, 40, 0, 0},
		"room":             {30, 40, 1, 1.02},
		"little room":      {36, 40, 1, 1.5},
		"near":             {39, 40, 1.9, 2.05},
		"all of one":       {40, 40, 1.95, 2.1},
		"room of two":      {60, 40, 2, 2.02},
		"near two":         {79, 40, 2.9, 3.1},
		"large, near":      {398, 100, 4.8, 5.1},
		"large, with room": {360, 100, 4, 4.1},
		"slow":             {2, 0.5, 5, 10},
		"as many as may":   {500, 40, 10, 10},
	} {
		t.Run(name, func(t *testing.T) {
			instance := Configuration{Share: share.Share{SMRequest: 100, SMLimit: 100, QuotaRequest: 1000, QuotaLimit: 1000, Memory: 1 << 30}, Batch: 1, Throughput: c.throughput}
			got, err := Expected(Policy{Predict: Kalman}, instance, c.rate)
			if err != nil || got < c.least || got > c.most {
				t.Errorf("%.3f, %v, want %v to %v", got, err, c.least, c.most)
			}
			if again, _ := Expected(Policy{Predict: Kalman}, instance, c.rate); again != got {
				t.Errorf("%v, then %v", got, again)
			}
		})
	}
	_, err := Expected(Policy{}, Configuration{}, 1)
	wantField(t, "sm", err)
	_, err = Expected(Policy{}, size, -1)
	wantField(t, "load", err)
}
