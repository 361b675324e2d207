package routing

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/gshare-dev/gshare/serving/rules/scaling"
)

const ms = time.Millisecond

// order sorts requests by Compare.
func order(now time.Duration, requests []Request) {
	slices.SortFunc(requests, func(a, b Request) int { return Compare(now, a, b) })
}

func TestCompare(t *testing.T) {
	for name, c := range map[string]struct {
		now      time.Duration
		requests []Request // by ID 1, 2, ...
		want     []uint64
	}{
		"deadline":          {0, []Request{{Deadline: 300 * ms}, {Deadline: 100 * ms}, {Deadline: 200 * ms}}, []uint64{2, 3, 1}},
		"execution counts":  {0, []Request{{Deadline: 300 * ms, Execution: 250 * ms}, {Deadline: 100 * ms, Execution: 10 * ms}}, []uint64{1, 2}},
		"load counts":       {0, []Request{{Deadline: 100 * ms}, {Deadline: 300 * ms, Load: 250 * ms}}, []uint64{2, 1}},
		"equal: by ID":      {0, []Request{{Deadline: 100 * ms}, {Deadline: 110 * ms, Execution: 10 * ms}}, []uint64{1, 2}},
		"hopeless go last":  {60 * ms, []Request{{Deadline: 100 * ms, Execution: 41 * ms}, {Deadline: 900 * ms}, {Deadline: 100 * ms, Execution: 40 * ms}}, []uint64{3, 2, 1}},
		"hopeless: oldest":  {900 * ms, []Request{{Deadline: 200 * ms}, {Deadline: 100 * ms}}, []uint64{2, 1}},
		"hopeless and load": {900 * ms, []Request{{Deadline: 100 * ms, Load: 50 * ms}, {Deadline: 149 * ms}, {Deadline: 151 * ms}}, []uint64{2, 1, 3}},
	} {
		t.Run(name, func(t *testing.T) {
			for i := range c.requests {
				c.requests[i].ID = uint64(i + 1)
			}
			order(c.now, c.requests)
			var got []uint64
			for _, r := range c.requests {
				got = append(got, r.ID)
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("order %v, want %v", got, c.want)
			}
		})
	}
}

// TestCompareIsAnOrder checks that Compare is a total order at any time: that of a sorted list.
func TestCompareIsAnOrder(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	d := func() time.Duration { return time.Duration(random.IntN(6)) * ms }
	for range 2000 {
		now, list := d(), make([]Request, 6)
		for i := range list {
			list[i] = Request{uint64(i), d() + d(), d(), d()}
		}
		order(now, list)
		for i, a := range list {
			for j, b := range list {
				if got := Compare(now, a, b); got > 0 != (i > j) || got < 0 != (i < j) {
					t.Fatalf("at %v %+v and %+v compare as %d, but are sorted %v", now, a, b, got, list)
				}
			}
		}
		hopeless := func(r Request) bool { return r.LatestStart() < now }
		if first := slices.IndexFunc(list, hopeless); first >= 0 && slices.ContainsFunc(list[first:], func(r Request) bool { return !hopeless(r) }) {
			t.Fatalf("at %v a hopeless request is before one that is not: %v", now, list)
		}
	}
}

func TestChoose(t *testing.T) {
	hot := func(latency time.Duration, outstanding, capacity int) Instance {
		return Instance{Residency: scaling.Hot, Latency: latency, Outstanding: outstanding, Capacity: capacity}
	}
	shared := Instance{Residency: scaling.Shared, Latency: ms, Outstanding: 99}
	warm := Instance{Residency: scaling.Warm}
	draining := hot(1, 0, 9)
	draining.Draining = true
	for name, c := range map[string]struct {
		instances []Instance
		want      int // -1: none
	}{
		"none":                      {nil, -1},
		"hot, however slow":         {[]Instance{shared, hot(time.Second, 0, 1)}, 1},
		"the fastest hot":           {[]Instance{hot(3*ms, 0, 1), hot(2*ms, 0, 1), hot(4*ms, 0, 1)}, 1},
		"full: the next":            {[]Instance{hot(3*ms, 0, 1), hot(2*ms, 1, 1)}, 0},
		"more than full":            {[]Instance{hot(2*ms, 5, 1), hot(3*ms, 0, 1)}, 1},
		"all full: the shared one":  {[]Instance{hot(2*ms, 1, 1), warm, shared}, 2},
		"a warm one":                {[]Instance{hot(2*ms, 1, 1), warm}, 1},
		"all full":                  {[]Instance{hot(2*ms, 1, 1)}, -1},
		"draining":                  {[]Instance{draining}, -1},
		"cold, and what is unknown": {[]Instance{{Residency: scaling.Cold}, {Residency: -1, Capacity: 1}}, -1},
		"equal: the first ID":       {[]Instance{{ID: 8, Capacity: 1}, {ID: 7, Capacity: 1}}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			got, ok := Choose(c.instances)
			if ok != (c.want >= 0) || ok && got != c.want {
				t.Errorf("chose %d, %v; want %d", got, ok, c.want)
			}
		})
	}
}

// TestChooseProperties checks that requests get the fastest instances, that no hot instance exceeds its capacity, and that a slower or shared
// instance is used only if all faster ones are full.
func TestChooseProperties(t *testing.T) {
	random := rand.New(rand.NewPCG(2, 1))
	overflow := 0
	for range 2000 {
		var instances []Instance
		for id := range random.IntN(5) {
			instances = append(instances, Instance{
				ID: id, Residency: scaling.Residency(random.IntN(3)), Latency: time.Duration(random.IntN(4)) * ms,
				Capacity: random.IntN(4), Outstanding: random.IntN(3), Draining: random.IntN(5) == 0,
			})
		}
		const requests = 8
		places := placesByHand(instances, requests)
		left := slices.Clone(instances)
		for n := range requests {
			want := -1
			if n < len(places) {
				want = places[n]
			}
			before := slices.Clone(left)
			at, ok := Choose(left)
			if !slices.Equal(before, left) {
				t.Fatal("the input changed")
			}
			if at != want || ok != (want >= 0) {
				t.Fatalf("request %d goes to %d, %v, want %d; instances %+v", n, at, ok, want, instances)
			}
			if ok {
				left[at].Outstanding++
				if left[at].Residency != scaling.Hot {
					overflow++
				}
			}
		}
	}
	if overflow == 0 {
		t.Error("no request was routed to a shared instance")
	}
}

// placesByHand lists the free capacity of all instances, the best first, as indices of instances. One that is not hot takes all requests.
func placesByHand(instances []Instance, requests int) (places []int) {
	for _, residency := range []scaling.Residency{scaling.Hot, scaling.Shared, scaling.Warm} {
		for latency := range time.Duration(4) {
			for at, i := range instances {
				if i.Residency != residency || i.Latency != latency*ms || i.Draining {
					continue
				}
				free := requests
				if residency == scaling.Hot {
					free = max(0, i.Capacity-i.Outstanding)
				}
				places = append(places, slices.Repeat([]int{at}, free)...)
			}
		}
	}
	return places
}
