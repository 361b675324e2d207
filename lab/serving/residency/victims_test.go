package residency

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/gshare-dev/gshare/serving/rules/pipeline"
)

// crowd serves ten minutes of requests to 20 functions on four slices, two of them larger, that hold one to six of the functions each. Few
// functions have most of the requests. It returns how many requests were late, and how many had to be loaded first, in per mille.
func crowd(t *testing.T, seed uint64, rate float64, within time.Duration) (late, loads int) {
	t.Helper()
	const functions = 20
	r, n := rand.New(rand.NewPCG(seed, 20)), newNode(t, Policy{}, 0, 0)
	for i := range functions {
		if err := n.Register(testFunction(fmt.Sprint("f", i), "t", 3+i%5, time.Duration(40+40*(i%7))*ms)); err != nil {
			t.Fatal(err)
		}
	}
	for i, kind := range []string{"1g.10gb", "1g.10gb", "2g.20gb", "2g.20gb"} {
		if err := n.AddSlice(0, pipeline.Slice{ID: fmt.Sprint("s", i), Kind: kinds[kind]}); err != nil {
			t.Fatal(err)
		}
	}
	ends := map[string]time.Duration{} // of the running requests, by slice
	dispatch := func(now time.Duration) {
		for _, s := range n.Dispatch(now).Starts {
			ends[s.Slice] = now + s.Load + s.Execution
			if s.Load > 0 {
				loads++
			}
			if ends[s.Slice] > s.Request.Deadline {
				late++
			}
		}
	}
	finishUntil := func(now time.Duration) {
		for {
			first := ""
			for slice, end := range ends {
				if end <= now && (first == "" || end < ends[first] || end == ends[first] && slice < first) {
					first = slice
				}
			}
			if first == "" {
				return
			}
			end := ends[first]
			delete(ends, first)
			if err := n.Finish(end, first); err != nil {
				t.Fatal(err)
			}
			dispatch(end)
		}
	}
	requests := 0
	for now := time.Duration(0); now < 10*time.Minute; now += time.Duration(r.ExpFloat64() / rate * float64(time.Second)) {
		finishUntil(now)
		requests++
		enqueue(t, n, now, uint64(requests), fmt.Sprint("f", min(int(5*r.ExpFloat64()), functions-1)), now+within)
		dispatch(now)
	}
	return late * 1000 / requests, loads * 1000 / requests
}

// TestCrowd logs the figures of docs/adr/0018, and checks that few requests are late where the slices have time for all.
func TestCrowd(t *testing.T) {
	for _, within := range []time.Duration{300 * ms, time.Second} {
		for _, rate := range []float64{8, 20, 28} {
			late, loads := 0, 0
			const seeds = 10
			for seed := range uint64(seeds) {
				l, m := crowd(t, seed, rate, within)
				late, loads = late+l, loads+m
			}
			t.Logf("%v requests a second within %v: %.1f %% late, %.1f %% loaded first", rate, within, float64(late)/10/seeds, float64(loads)/10/seeds)
			if rate == 8 && late > 30*seeds {
				t.Errorf("of %v requests a second within %v, %v per mille are late", rate, within, late/seeds)
			}
		}
	}
}
