package profiler

import (
	"slices"
	"testing"

	"github.com/gshare-dev/gshare/serving/rules/profile"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// TestSmaller: of smaller shares those are kept that answer more than any smaller one, with the batch of the best.
func TestSmaller(t *testing.T) {
	trial := func(sm, quota share.PerMille, batch int, rate float64, change func(*Trial)) Trial {
		made := Trial{Point: profile.Point{Resource: profile.Resource{SM: sm, Quota: quota}, Batch: batch, Throughput: rate}}
		if change != nil {
			change(&made)
		}
		return made
	}
	best := trial(500, 1000, 4, 500, func(t *Trial) { t.Confirmed = true })
	many := []Trial{best}
	for n := range 10 {
		many = append(many, trial(share.PerMille(10*(n+1)), 1000, 4, float64(n*n+1), nil))
	}
	for name, c := range map[string]struct {
		trials []Trial
		want   []Smaller
	}{
		"none": {[]Trial{best}, nil},
		"smallest first, 5 % less": {[]Trial{best, trial(250, 1000, 4, 200, nil), trial(120, 500, 4, 10, nil)},
			[]Smaller{{profile.Resource{SM: 120, Quota: 500}, 9.5}, {profile.Resource{SM: 250, Quota: 1000}, 190}}},
		"confirmed": {[]Trial{best, trial(250, 1000, 4, 200, func(t *Trial) { t.Confirmed = true })}, []Smaller{{profile.Resource{SM: 250, Quota: 1000}, 200}}},
		"as much as a larger one": {[]Trial{best, trial(250, 1000, 4, 100, nil), trial(250, 500, 4, 100, nil), trial(240, 1000, 4, 90, nil)},
			[]Smaller{{profile.Resource{SM: 250, Quota: 500}, 95}}},
		"of no use": {[]Trial{best, trial(250, 1000, 2, 200, nil), trial(250, 900, 4, 0, nil), trial(600, 1000, 4, 510, nil),
			trial(250, 800, 4, 200, func(t *Trial) { t.Failed = "exited" }), trial(250, 700, 4, 200, func(t *Trial) { t.ClientLate = true })}, nil},
		"too many": {many, []Smaller{ // without those of 10 and 20 per mille, which take the most for a request
			{profile.Resource{SM: 30, Quota: 1000}, 4.75}, {profile.Resource{SM: 40, Quota: 1000}, 9.5}, {profile.Resource{SM: 50, Quota: 1000}, 16.1},
			{profile.Resource{SM: 60, Quota: 1000}, 24.7}, {profile.Resource{SM: 70, Quota: 1000}, 35.1}, {profile.Resource{SM: 80, Quota: 1000}, 47.5},
			{profile.Resource{SM: 90, Quota: 1000}, 61.7}, {profile.Resource{SM: 100, Quota: 1000}, 77.8}}},
	} {
		t.Run(name, func(t *testing.T) {
			found, err := (&Record{Trials: c.trials}).Recommend(nil)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(found.Smaller, c.want) {
				t.Errorf("got %+v\nwant %+v", found.Smaller, c.want)
			}
		})
	}
}
