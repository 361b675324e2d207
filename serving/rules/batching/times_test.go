package batching

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

const ms = time.Millisecond

// TestTimesChange checks how many answers it takes to change what is expected of a replica.
func TestTimesChange(t *testing.T) {
	for name, c := range map[string]struct {
		known, then time.Duration
		atOnce      int
		until       func(time.Duration) bool
		least, most int
	}{
		"twice as slow is noticed in a few":       {10 * ms, 20 * ms, 1, func(d time.Duration) bool { return d > 18*ms }, 3, 25},
		"twice as slow, several at once":          {10 * ms, 20 * ms, 8, func(d time.Duration) bool { return d > 18*ms }, 10, 40},
		"a hundred times as slow is noticed":      {10 * ms, 1000 * ms, 1, func(d time.Duration) bool { return d > 500*ms }, 3, 12},
		"ten times as fast is noticed":            {100 * ms, 10 * ms, 1, func(d time.Duration) bool { return d < 20*ms }, 5, 25},
		"one alone counts as one of many":         {10 * ms, time.Second, 1, func(d time.Duration) bool { return d > 14*ms && d < 16*ms }, 1, 1},
		"the first does not count alone":          {0, 100 * ms, 1, func(d time.Duration) bool { return d >= 30*ms }, 1, 1},
		"the first ones are known after a few":    {0, 100 * ms, 1, func(d time.Duration) bool { return d >= 75*ms }, 2, 2},
		"what is as expected does not change it":  {10 * ms, 10 * ms, 1, func(d time.Duration) bool { return (d - 10*ms).Abs() > time.Microsecond }, 1000, 1000},
		"a little slower is not taken for a jump": {100 * ms, 101 * ms, 1, func(d time.Duration) bool { return d > 101*ms }, 1000, 1000},
	} {
		t.Run(name, func(t *testing.T) {
			var times Times
			for range 300 {
				if c.known > 0 {
					times.Add(1, c.known, c.atOnce)
				}
			}
			n := 0
			for ; !c.until(times.Mean(1)) && n < 1000; n++ {
				times.Add(1, c.then, c.atOnce)
			}
			if n < c.least || n > c.most {
				t.Errorf("%d answers, want %d to %d", n, c.least, c.most)
			}
		})
	}
}

// TestTimesOfSizes checks the expected times of batches of sizes that were not measured.
func TestTimesOfSizes(t *testing.T) {
	var l Times
	if l.Mean(3) != 0 {
		t.Errorf("nothing was measured: %v", l.Mean(3))
	}
	for range 100 {
		l.Add(2, 20*ms, 1)
		l.Add(4, 40*ms, 1)
	}
	for batch, want := range map[int]time.Duration{1: 20, 2: 20, 3: 20, 4: 40, 5: 40, 100: 40} {
		if got := l.Mean(batch).Round(ms); got != want*ms {
			t.Errorf("a batch of %d: %v, want %d ms", batch, got, want)
		}
	}
	for range 10 {
		l.Add(4, 10*time.Second, 1)
	}
	for range 1000 {
		l.Add(2, 20*ms, 1)
	}
	if got := l.Mean(4); got > 50*ms {
		t.Errorf("what was slow once is never tried again: %v", got)
	}
}

// varying are distributions with the mean 1, and their 95th percentiles.
var varying = map[string]struct {
	draw func(*rand.Rand) float64
	p95  float64 // 0: hardly known from few answers
}{
	"constant":           {func(*rand.Rand) float64 { return 1 }, 1},
	"uniform, 3 x":       {func(r *rand.Rand) float64 { return 0.5 + r.Float64() }, 1.45},
	"exponential":        {func(r *rand.Rand) float64 { return r.ExpFloat64() }, 3},
	"log-normal":         {func(r *rand.Rand) float64 { return math.Exp(r.NormFloat64() - 0.5) }, 3.14},
	"one in 5 takes 8 x": {func(r *rand.Rand) float64 { return map[bool]float64{true: 8, false: 1}[r.IntN(5) == 0] / 2.4 }, 3.33},
	"one in 50 is 20 x":  {func(r *rand.Rand) float64 { return map[bool]float64{true: 20, false: 1}[r.IntN(50) == 0] / 1.38 }, 0},
}

// TestTimesVary checks that what is learned has no bias, whatever the distribution: an average that rises faster than it falls is twice the mean of an
// exponential one, say. It is the same where what is begun together ends in the order of the times.
func TestTimesVary(t *testing.T) {
	for name, c := range varying {
		for _, sorted := range []int{1, 8, 64} {
			r := rand.New(rand.NewPCG(1, uint64(sorted)))
			var times Times
			var mean, longest, samples float64
			for round := range 20_000 / sorted {
				batch := make([]float64, sorted)
				for i := range batch {
					batch[i] = c.draw(r)
				}
				slices.Sort(batch)
				for _, x := range batch {
					times.Add(1, time.Duration(x*float64(time.Second)), sorted)
				}
				if round*sorted > 500 {
					mean += times.Mean(1).Seconds()
					longest += times.Mean(1).Seconds() * times.Longest(times.Mean(1), 0.05, 0)
					samples++
				}
			}
			mean, longest = mean/samples, longest/samples
			if math.Abs(mean-1) > map[bool]float64{true: 0.25, false: 0.12}[c.p95 == 0] || c.p95 > 0 && math.Abs(longest/c.p95-1) > 0.2 {
				t.Errorf("%s, %d at once: mean %.3f, 95 %% within %.3f, want 1 and %.2f", name, sorted, mean, longest, c.p95)
			}
		}
	}
}

// TestLongest checks that what is late in any case leaves the others alone.
func TestLongest(t *testing.T) {
	var times Times
	if got := times.Longest(0, 0.05, time.Second); got != 1 {
		t.Errorf("nothing is known: %v", got)
	}
	for i := range 1000 { // one in ten takes 4 s, the others 1 s
		times.Add(1, map[bool]time.Duration{true: 4 * time.Second, false: time.Second}[i%10 == 0], 1)
	}
	mean := times.Mean(1)
	for limit, want := range map[time.Duration]time.Duration{0: 4 * time.Second, 5 * time.Second: 4 * time.Second, 3 * time.Second: mean, time.Millisecond: mean} {
		if got := time.Duration(times.Longest(mean, 0.05, limit) * float64(mean)); (got - want).Abs() > want/10 {
			t.Errorf("within %v: %v, want %v", limit, got, want)
		}
	}
}

// TestTimesSize checks that the memory does not grow with what is measured.
func TestTimesSize(t *testing.T) {
	var times Times
	r := rand.New(rand.NewPCG(2, 2))
	add := func() { times.Add(1+r.IntN(4), time.Duration(math.Exp(30*r.Float64())), 1+r.IntN(64)) }
	for range 100 {
		add()
	}
	if n := testing.AllocsPerRun(10_000, add); n != 0 {
		t.Errorf("%v allocations", n)
	}
	var weight float64
	for _, b := range times.ratios {
		weight += b.weight
	}
	if math.Abs(weight-times.known) > 1e-6 || weight > maxKnown+1 || math.IsNaN(times.rank) {
		t.Errorf("%v answers weigh %v", times.known, weight)
	}
}

// TestEnds compares when batches are predicted to end with draws of what is left of each, given how long it has been running.
func TestEnds(t *testing.T) {
	for name, c := range varying {
		if c.p95 == 0 {
			continue
		}
		for _, n := range []int{1, 4, 16} {
			r := rand.New(rand.NewPCG(3, uint64(n)))
			var times Times
			for range 5000 {
				times.Add(1, time.Duration(c.draw(r)*float64(time.Second)), n)
			}
			ages := make([]float64, n)
			for i := range ages {
				ages[i] = r.Float64() * c.draw(r) // as old as some batch is when one looks
			}
			want := make([]float64, n)
			const draws = 2000
			for range draws {
				left := make([]float64, n)
				for i, age := range ages {
					x := c.draw(r)
					for tries := 0; x <= age && tries < 1000; tries++ {
						x = c.draw(r)
					}
					left[i] = max(0, x-age)
				}
				slices.Sort(left)
				for i := range want {
					want[i] += left[i] / draws
				}
			}
			var e Ends
			for _, age := range ages {
				e.Add(&times, times.Mean(1), time.Duration(age*float64(time.Second)), 1)
			}
			got := e.AppendTo(nil, epoch)
			if len(got) != n || !slices.IsSortedFunc(got, time.Time.Compare) {
				t.Fatalf("%s: %v", name, got)
			}
			for i := range got {
				if d := got[i].Sub(epoch).Seconds(); math.Abs(d-want[i]) > 0.4+want[i]/2 {
					t.Errorf("%s: end %d of %d is predicted after %.2f, want %.2f", name, i+1, n, d, want[i])
				}
			}
		}
	}
}

// TestEndsOfUnknown checks what is expected of batches that take longer than all that are known.
func TestEndsOfUnknown(t *testing.T) {
	var none, one, known Times
	one.Add(1, time.Second, 1)
	for range 100 {
		known.Add(1, time.Second, 1)
	}
	for name, c := range map[string]struct {
		times    *Times
		age      time.Duration
		from, to time.Duration // when it is expected to end
	}{
		"as long as it takes":    {&known, 300 * ms, 699 * ms, 701 * ms},
		"nothing is known":       {&none, 10 * time.Second, 5 * time.Second, 20 * time.Second},
		"nothing, just begun":    {&none, 0, 0, ms},
		"only one is":            {&one, 100 * ms, 150 * ms, 250 * ms}, // its mean is 300 ms
		"longer than the one":    {&one, 2 * time.Second, time.Second, 4 * time.Second},
		"twice as long as known": {&known, 2 * time.Second, time.Second, 4 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			var e Ends
			e.Add(c.times, c.times.Mean(1), c.age, 1)
			if got := e.AppendTo(nil, epoch)[0].Sub(epoch); got < c.from || got > c.to {
				t.Errorf("after %v, want %v to %v", got, c.from, c.to)
			}
			e.Reset()
			if got := e.AppendTo(nil, epoch); len(got) != 0 {
				t.Errorf("there are none: %v", got)
			}
		})
	}
}

// TestSpread checks what counts with its mean, and what with the longest that it may take, here three times as much: 12 ms and 36 ms for one request.
func TestSpread(t *testing.T) {
	replica := func(busy bool) Load {
		return Load{Replicas: []Replica{{Busy: busy, FreeAt: at(20), Spread: 3}}}
	}
	for name, c := range map[string]struct {
		before   int // requests that wait before
		deadline int
		load     Load
		accepted bool
	}{
		"alone, idle: its mean":              {0, 12, replica(false), true},
		"alone, idle: late on average":       {0, 11, replica(false), false},
		"busy until 20: at most":             {0, 56, replica(true), true},
		"busy until 20: may be late":         {0, 55, replica(true), false},
		"behind two, which take their means": {2, 20 + 2*12 + 36, replica(true), true},
		"behind two: may be late":            {2, 20 + 2*12 + 35, replica(true), false},
	} {
		t.Run(name, func(t *testing.T) {
			q := queue(t, Config{MaxBatch: 1})
			for i := range uint64(c.before) {
				q.tree.add(Request{ID: i, Deadline: at(1)})
			}
			if got := q.Add(Request{ID: 9, Deadline: at(c.deadline)}, at(0), c.load); got != c.accepted {
				t.Errorf("accepted: %v, want %v", got, c.accepted)
			}
		})
	}
	for name, c := range map[string]struct {
		deadlines []int
		fire      []uint64
		refused   []uint64
	}{
		"alone: may be late":                      {[]int{30}, []uint64{0}, nil},
		"alone: late on average":                  {[]int{11}, nil, []uint64{0}},
		"leaves the replica to one that may not":  {[]int{30, 40}, []uint64{1}, []uint64{0}},
		"both may be late: the last one is alone": {[]int{30, 31}, []uint64{1}, []uint64{0}},
		"both in time":                            {[]int{36, 40}, []uint64{0}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			q := queue(t, Config{MaxBatch: 1})
			for i, d := range c.deadlines {
				q.tree.add(Request{ID: uint64(i), Deadline: at(d)})
			}
			d := q.Decide(at(0), replica(false))
			if !slices.Equal(ids(d.Fire), c.fire) || !slices.Equal(ids(d.Refused), c.refused) {
				t.Errorf("fire %v, refuse %v, want %v, %v", ids(d.Fire), ids(d.Refused), c.fire, c.refused)
			}
		})
	}
}

func BenchmarkEnds(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 1))
	var times Times
	for range 1000 {
		times.Add(1, time.Duration(r.ExpFloat64()*1e9), 16)
	}
	var e Ends
	var ends []time.Time
	b.ReportAllocs()
	for b.Loop() {
		e.Reset()
		for i := range 16 {
			e.Add(&times, time.Second, time.Duration(i)*10*ms, 1)
		}
		ends = e.AppendTo(ends[:0], epoch)
	}
}
