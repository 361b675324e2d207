package search

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gshare-dev/gshare/serving/rules/profile"
	"github.com/gshare-dev/gshare/test/published"
	"github.com/gshare-dev/gshare/vgpu/share"
	"github.com/gshare-dev/gshare/vgpu/table"
)

// bench is a profiler that looks its measurements up.
type bench map[Setting]profile.Point

// diluTable reads a table of Dilu's public profiles (A100-40): batch, percent of SMs, seconds of a batch, requests/s.
func diluTable(t *testing.T, model string) bench {
	t.Helper()
	points := bench{}
	for row, err := range table.Records(strings.NewReader(published.Read(t, "dilu/bs_sm_"+model+".csv"))) {
		if err != nil {
			t.Fatal(err)
		}
		var v [4]float64
		for i := range v {
			if v[i], err = strconv.ParseFloat(row.Fields[i], 64); err != nil {
				t.Fatal(err)
			}
		}
		points.add(int(v[0]), share.PerMille(10*v[1]), v[2])
	}
	return points
}

func (b bench) add(batch int, sm share.PerMille, seconds float64) {
	p := profile.Point{
		Model:      "m",
		Resource:   profile.Resource{SM: sm, Quota: share.Whole},
		Batch:      batch,
		Mean:       time.Duration(seconds * 1e9),
		Throughput: float64(batch) / seconds,
		Memory:     1 << 30,
	}
	b[Trial{Point: p}.setting()] = p
}

// measure runs a search to its end. What the bench does not have fails.
func (b bench) measure(t testing.TB, s Strategy) []Trial {
	t.Helper()
	var history []Trial
	for {
		next, more, err := s.Next(history)
		if err != nil {
			t.Fatal(err)
		}
		if !more {
			return history
		}
		p, ran := b[next]
		if !ran {
			p = profile.Point{Model: "m", Stage: next.Stage, Resource: next.Resource, Batch: next.Batch}
		}
		history = append(history, Trial{Point: p, Failed: !ran})
		if len(history) > 10_000 {
			t.Fatal("the search does not end")
		}
	}
}

// exhaustive returns the highest efficacy of all settings whose batch takes at most bound.
func (b bench) exhaustive(bound time.Duration) (best profile.Point) {
	efficacy := 0.0
	for _, p := range b { // in any order: no two settings measured the same
		if p.Mean <= bound && Efficacy(p) > efficacy {
			best, efficacy = p, Efficacy(p)
		}
	}
	return best
}
