package batching

import (
	"errors"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/gshare-dev/gshare/vgpu/share"
)

var epoch = time.Unix(1000, 0)

func at(ms int) time.Time { return epoch.Add(time.Duration(ms) * time.Millisecond) }

// tenEach takes 10 ms and 2 ms for each request.
func tenEach(batch int) time.Duration { return time.Duration(10+2*batch) * time.Millisecond }

func queue(t testing.TB, c Config) *Queue {
	t.Helper()
	if c.Latency == nil {
		c.Latency = tenEach
	}
	q, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

// idleLoad has a number of idle replicas.
func idleLoad(n int) Load { return Load{Replicas: make([]Replica, n)} }

func ids(requests []Request) []uint64 {
	var out []uint64
	for _, r := range requests {
		out = append(out, r.ID)
	}
	return out
}

func TestDecide(t *testing.T) {
	idle := idleLoad(1)
	for name, c := range map[string]struct {
		config    Config
		deadlines []int // ms, of requests 0, 1, ...
		now       int
		load      Load
		fire      []uint64
		refused   []uint64
		wake      time.Time
	}{
		"nothing":                  {config: Config{MaxBatch: 4}, load: idle},
		"lone request, idle":       {config: Config{MaxBatch: 4}, deadlines: []int{100}, load: idle, fire: []uint64{0}},
		"urgent first":             {config: Config{MaxBatch: 2, Fill: true}, deadlines: []int{300, 100, 200}, load: idle, fire: []uint64{1, 2}},
		"full":                     {config: Config{MaxBatch: 2, Fill: true}, deadlines: []int{100, 200}, load: idle, fire: []uint64{0, 1}},
		"fill: wait for the head":  {config: Config{MaxBatch: 4, Fill: true}, deadlines: []int{100, 200}, load: idle, wake: at(84)}, // 100 - L(3)
		"fill: head must start":    {config: Config{MaxBatch: 4, Fill: true}, deadlines: []int{100, 200}, now: 84, load: idle, fire: []uint64{0, 1}},
		"margin":                   {config: Config{MaxBatch: 4, Fill: true, Margin: 5 * time.Millisecond}, deadlines: []int{100}, load: idle, wake: at(81)},
		"smaller, to be in time":   {config: Config{MaxBatch: 4}, deadlines: []int{15, 90, 90}, load: idle, fire: []uint64{0, 1}}, // L(3) = 16
		"late":                     {config: Config{MaxBatch: 4}, deadlines: []int{11, 90}, load: idle, refused: []uint64{0}, fire: []uint64{1}},
		"busy":                     {config: Config{MaxBatch: 1}, deadlines: []int{100}, load: Load{Replicas: []Replica{{Busy: true}}}, wake: at(88).Add(1)},
		"many to come: wait":       {config: Config{MaxBatch: 4}, deadlines: []int{100}, load: Load{Replicas: idleLoad(1).Replicas, Rate: 1000}, wake: at(10)},
		"few to come: do not wait": {config: Config{MaxBatch: 4}, deadlines: []int{100}, load: Load{Replicas: idleLoad(1).Replicas, Rate: 90}, fire: []uint64{0}},
		// Three requests wait 3/Rate together; a batch of four saves L(3) + L(1) - L(4) = 16 + 12 - 18 = 10 ms.
		"three wait for a fourth":   {config: Config{MaxBatch: 8}, deadlines: []int{100, 100, 100}, load: Load{Replicas: idleLoad(1).Replicas, Rate: 310}, wake: at(0).Add(10 * time.Millisecond / 3)},
		"head must start before":    {config: Config{MaxBatch: 4}, deadlines: []int{20}, load: Load{Replicas: idleLoad(1).Replicas, Rate: 1000}, wake: at(6)},
		"three do not wait":         {config: Config{MaxBatch: 8}, deadlines: []int{100, 100, 100}, load: Load{Replicas: idleLoad(1).Replicas, Rate: 290}, fire: []uint64{0, 1, 2}},
		"same deadline: by ID":      {config: Config{MaxBatch: 2, Fill: true}, deadlines: []int{100, 100, 100}, load: idle, fire: []uint64{0, 1}},
		"batch of one never waits":  {config: Config{MaxBatch: 1, Fill: true}, deadlines: []int{100}, load: idle, fire: []uint64{0}},
		"last moment, not yet late": {config: Config{MaxBatch: 4}, deadlines: []int{12}, load: idle, fire: []uint64{0}},
	} {
		t.Run(name, func(t *testing.T) {
			q := queue(t, c.config)
			for i, d := range c.deadlines {
				if !q.Add(Request{ID: uint64(i), Deadline: at(d)}, at(-1000), Load{}) {
					t.Fatalf("request %d was refused at once", i)
				}
			}
			got := q.Decide(at(c.now), c.load)
			if !slices.Equal(ids(got.Fire), c.fire) || !slices.Equal(ids(got.Refused), c.refused) || !got.Wake.Equal(c.wake) {
				t.Errorf("fire %v, refuse %v, wake %v; want %v, %v, %v", ids(got.Fire), ids(got.Refused), got.Wake, c.fire, c.refused, c.wake)
			}
			if want := len(c.deadlines) - len(c.fire) - len(c.refused); q.Len() != want {
				t.Errorf("%d wait, want %d", q.Len(), want)
			}
		})
	}
}

// TestNobodyComes: requests that wait for another one because many came before do not wait much longer than it may save, 10 ms for one request.
func TestNobodyComes(t *testing.T) {
	q := queue(t, Config{MaxBatch: 4})
	load := Load{Replicas: idleLoad(1).Replicas, Rate: 1000}
	q.Add(Request{ID: 1, Deadline: at(100_000)}, at(0), load)
	if d := q.Decide(at(0), load); len(d.Fire) > 0 || !d.Wake.Equal(at(10)) {
		t.Errorf("alone: %+v", d)
	}
	q.Add(Request{ID: 2, Deadline: at(100_000)}, at(8), load)
	d := q.Decide(at(8), load) // begins to wait again, for a third one
	if len(d.Fire) > 0 || !d.Wake.Equal(at(13)) {
		t.Errorf("two: %+v", d)
	}
	if d := q.Decide(at(12), load); len(d.Fire) > 0 || !d.Wake.Equal(at(13)) {
		t.Errorf("nothing has happened: %+v", d)
	}
	if d := q.Decide(d.Wake, load); !slices.Equal(ids(d.Fire), []uint64{1, 2}) {
		t.Errorf("nobody has come: %+v", d)
	}
	q.Add(Request{ID: 3, Deadline: at(100_000)}, at(20), load)
	q.Add(Request{ID: 4, Deadline: at(100_000)}, at(20), load)
	if d := q.Decide(at(20), load); !d.Wake.Equal(at(25)) {
		t.Errorf("the next ones: %+v", d)
	}
}

// TestAdd: behind three requests in batches of two, a request starts after one round of 14 ms and takes 12 ms.
func TestAdd(t *testing.T) {
	for name, c := range map[string]struct {
		deadline int
		load     Load
		want     bool
	}{
		"in time":              {26, idleLoad(1), true},
		"predicted late":       {25, idleLoad(1), false},
		"two replicas":         {25, idleLoad(2), true},
		"busy until 20":        {45, Load{Replicas: []Replica{{Busy: true, FreeAt: at(20)}}}, false},
		"busy until 19":        {45, Load{Replicas: []Replica{{Busy: true, FreeAt: at(19)}}}, true},
		"before all others":    {13, idleLoad(1), true},
		"too tight by itself":  {11, idleLoad(1), false},
		"deadline in the past": {-5, idleLoad(1), false},
	} {
		t.Run(name, func(t *testing.T) {
			q := queue(t, Config{MaxBatch: 2})
			for i := range uint64(3) {
				q.Add(Request{ID: i, Deadline: at(24)}, at(-1000), Load{})
			}
			if got := q.Add(Request{ID: 9, Deadline: at(c.deadline)}, at(0), c.load); got != c.want {
				t.Errorf("accepted: %v, want %v", got, c.want)
			}
		})
	}
}

func TestNewRefuses(t *testing.T) {
	for field, c := range map[string]Config{
		"MaxBatch": {MaxBatch: 0, Latency: tenEach},
		"Latency":  {MaxBatch: 1},
		"Margin":   {MaxBatch: 1, Latency: tenEach, Margin: -1},
	} {
		t.Run(field, func(t *testing.T) {
			_, err := New(c)
			var got *share.FieldError
			if !errors.As(err, &got) || got.Field != field {
				t.Errorf("%v, want an error of %s", err, field)
			}
		})
	}
}

// outcome counts the requests of a simulated replica.
type outcome struct{ inTime, late, refused int }

// drive sends Poisson requests with deadlines of 40 to 200 ms to one replica that is as fast as predicted.
func drive(t testing.TB, q *Queue, rate float64, n int, seed uint64) outcome {
	return driveOn(t, q, q.config.Latency, rate, n, seed)
}

// driveOn has a replica that takes its own time.
func driveOn(t testing.TB, q *Queue, takes func(int) time.Duration, rate float64, n int, seed uint64) outcome {
	r := rand.New(rand.NewPCG(seed, 5))
	var o outcome
	now, free, wake := epoch, epoch, time.Time{}
	next := epoch
	for sent := 0; sent < n || q.Len() > 0; {
		if sent < n && !next.After(now) {
			load := Load{Replicas: []Replica{{Busy: free.After(now), FreeAt: free}}, Rate: rate}
			if !q.Add(Request{ID: uint64(sent), Deadline: now.Add(time.Duration(40+r.IntN(160)) * time.Millisecond)}, now, load) {
				o.refused++
			}
			sent++
			next = now.Add(time.Duration(r.ExpFloat64() / rate * 1e9))
		}
		d := q.Decide(now, Load{Replicas: []Replica{{Busy: free.After(now), FreeAt: free}}, Rate: rate})
		o.refused += len(d.Refused)
		if len(d.Fire) > 0 {
			free = now.Add(takes(len(d.Fire)))
			for _, x := range d.Fire {
				if free.After(x.Deadline) {
					o.late++
				} else {
					o.inTime++
				}
			}
		}
		wake = d.Wake
		before := now
		now = soonest(now, free, wake, next, sent < n)
		if now.Equal(before) && len(d.Fire) == 0 && next.After(now) {
			t.Fatal("time stands still")
		}
	}
	return o
}

func soonest(now, free, wake, next time.Time, more bool) time.Time {
	then := time.Time{}
	for _, x := range []time.Time{free, wake, next} {
		if x.Equal(next) && !more || x.IsZero() || !x.After(now) && !x.Equal(next) {
			continue
		}
		if then.IsZero() || x.Before(then) {
			then = x
		}
	}
	if then.IsZero() || then.Before(now) {
		return now
	}
	return then
}

// TestOverload: with twice the load that full batches can bear, the replica still serves nearly what it can, and nothing
// that it serves is late.
func TestOverload(t *testing.T) {
	const batch = 8
	capacity := batch / tenEach(batch).Seconds() // requests a second
	for _, fill := range []bool{false, true} {
		q := queue(t, Config{MaxBatch: batch, Fill: fill})
		o := drive(t, q, 2*capacity, 20_000, 1)
		if o.late > 0 || o.inTime+o.refused != 20_000 {
			t.Errorf("fill %v: %+v", fill, o)
		}
		if served := float64(o.inTime) / 20_000; served < 0.47 {
			t.Errorf("fill %v: served %.3f of the requests, the replica can serve half", fill, served)
		}
	}
	// The control: where predictions are half the truth, late ones are served.
	q := queue(t, Config{MaxBatch: batch, Latency: func(b int) time.Duration { return tenEach(b) / 2 }})
	if o := driveOn(t, q, tenEach, 2*capacity, 20_000, 1); o.late == 0 {
		t.Error("wrong predictions make nobody late: the test cannot fail")
	}
}

// TestLightLoad: all requests are in time, and none waits for a batch that does not fill.
func TestLightLoad(t *testing.T) {
	for _, rate := range []float64{1, 50, 200} {
		if o := drive(t, queue(t, Config{MaxBatch: 8}), rate, 5000, 2); o.late > 0 || o.inTime < 4950 {
			t.Errorf("rate %v: %+v", rate, o)
		}
	}
}

func FuzzQueue(f *testing.F) {
	f.Add(uint64(1), 3, true, 100.0)
	f.Add(uint64(2), 1, false, 5000.0)
	f.Fuzz(func(t *testing.T, seed uint64, batch int, fill bool, rate float64) {
		if batch < 1 || batch > 64 || !(rate > 0.01 && rate < 1e5) || math.IsInf(rate, 0) {
			t.Skip()
		}
		o := drive(t, queue(t, Config{MaxBatch: batch, Fill: fill}), rate, 300, seed)
		if o.late > 0 || o.inTime+o.refused != 300 {
			t.Errorf("%+v", o)
		}
	})
}

// BenchmarkQueue is one request through a queue that holds others: a batch of eight is taken and eight are added, per request.
func BenchmarkQueue(b *testing.B) {
	for _, waiting := range []int{10, 1000, 100_000} {
		b.Run(strconv.Itoa(waiting), func(b *testing.B) {
			q, r := queue(b, Config{MaxBatch: 8}), rand.New(rand.NewPCG(1, 1))
			busy := Load{Replicas: []Replica{{Busy: true, FreeAt: at(0)}}}
			id := uint64(0)
			add := func() {
				id++
				if !q.Add(Request{ID: id, Deadline: at(1<<30 + r.IntN(1<<20))}, at(0), busy) {
					b.Fatal("refused")
				}
			}
			for range waiting {
				add()
			}
			b.ReportAllocs()
			for n := 0; b.Loop(); n++ {
				if n%8 == 0 {
					if d := q.Decide(at(0), idleLoad(1)); len(d.Fire) != 8 {
						b.Fatalf("a batch of %d", len(d.Fire))
					}
				}
				add()
			}
		})
	}
}

// TestRemove removes requests at random and compares what is left, and the count before each, with a sorted list.
func TestRemove(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 3))
	var q tree
	var list []Request
	for id := range uint64(4000) {
		x := Request{ID: id, Deadline: at(r.IntN(500))}
		at := slices.IndexFunc(list, func(o Request) bool { return earlier(&x, &o) })
		if at < 0 {
			at = len(list)
		}
		if got := q.before(&x); got != at {
			t.Fatalf("%d requests before %v, want %d", got, x, at)
		}
		q.add(x)
		list = slices.Insert(list, at, x)
		if r.IntN(3) == 0 {
			at := r.IntN(len(list))
			gone := list[at]
			if !q.remove(&gone) || q.remove(&gone) {
				t.Fatalf("%v could not be removed, or twice", gone)
			}
			list = slices.Delete(list, at, at+1)
		}
		if q.len() != len(list) || len(list) > 0 && *q.first() != list[0] {
			t.Fatalf("%d requests, want %d beginning with %v", q.len(), len(list), list[0])
		}
	}
	for _, want := range list {
		if got := q.pop(); got != want {
			t.Fatalf("%v, want %v", got, want)
		}
	}
}

// TestReplicas checks which replica takes a batch, and when a request is refused, where replicas differ.
func TestReplicas(t *testing.T) {
	takes := func(ms int) func(int) time.Duration {
		return func(int) time.Duration { return time.Duration(ms) * time.Millisecond }
	}
	slow, fast := Replica{ID: 1, Latency: takes(100)}, Replica{ID: 2, Latency: takes(10), MaxBatch: 1}
	busy := func(r Replica, until int) Replica { r.Busy, r.FreeAt = true, at(until); return r }
	for name, c := range map[string]struct {
		replicas  []Replica
		deadlines []int
		fire      []uint64
		on        int
		refused   []uint64
		wake      time.Time
	}{
		"the preferred one":        {replicas: []Replica{slow, fast}, deadlines: []int{150, 150}, fire: []uint64{0, 1}, on: 1},
		"the one that is in time":  {replicas: []Replica{slow, fast}, deadlines: []int{50, 150}, fire: []uint64{0}, on: 2},
		"its own largest batch":    {replicas: []Replica{fast, slow}, deadlines: []int{150, 150}, fire: []uint64{0}, on: 2},
		"wait for the one that is": {replicas: []Replica{slow, busy(fast, 20)}, deadlines: []int{50}, wake: at(40).Add(1)},
		"the slow one gets others": {replicas: []Replica{slow, busy(fast, 20)}, deadlines: []int{50, 99, 100, 150}, fire: []uint64{2, 3}, on: 1},
		"too slow for all":         {replicas: []Replica{slow, busy(fast, 20)}, deadlines: []int{50, 99}, wake: at(40).Add(1)},
		"slower in larger batches": {replicas: []Replica{{ID: 3, Latency: tenEach}, busy(fast, 20)}, deadlines: []int{11, 13, 15, 17}, fire: []uint64{2, 3}, on: 3},
		"late on all of them":      {replicas: []Replica{slow, busy(fast, 20)}, deadlines: []int{9, 150}, refused: []uint64{0}, fire: []uint64{1}, on: 1},
		"slow alone":               {replicas: []Replica{slow}, deadlines: []int{99, 150}, refused: []uint64{0}, fire: []uint64{1}, on: 1},
	} {
		t.Run(name, func(t *testing.T) {
			q := queue(t, Config{MaxBatch: 4, Latency: takes(1)})
			for i, d := range c.deadlines {
				q.Add(Request{ID: uint64(i), Deadline: at(d)}, at(-1000), Load{})
			}
			got := q.Decide(at(0), Load{Replicas: c.replicas})
			if !slices.Equal(ids(got.Fire), c.fire) || got.Replica != c.on || !slices.Equal(ids(got.Refused), c.refused) || !got.Wake.Equal(c.wake) {
				t.Errorf("fire %v on %d, refuse %v, wake %v; want %v on %d, %v, %v", ids(got.Fire), got.Replica, ids(got.Refused), got.Wake, c.fire, c.on, c.refused, c.wake)
			}
		})
	}
}

// TestSlowReplicaUnderLoad: beside a fast replica that alone is far from enough, a slow one answers nearly as many requests as it can. All have the same time,
// so those that wait first are too late for it.
func TestSlowReplicaUnderLoad(t *testing.T) {
	const fast, slow, slo = 10, 40, 60 // ms
	q := queue(t, Config{MaxBatch: 1})
	replicas := []Replica{
		{ID: 0, Latency: func(int) time.Duration { return fast * time.Millisecond }}, {ID: 1, Latency: func(int) time.Duration { return slow * time.Millisecond }},
	}
	r := rand.New(rand.NewPCG(1, 1))
	answered := [2]int{}
	const length = 20_000
	for ms := range length {
		now := at(ms)
		for i := range replicas {
			replicas[i].Busy = replicas[i].FreeAt.After(now)
		}
		load := Load{Replicas: replicas}
		if r.IntN(4) == 0 {
			q.Add(Request{ID: uint64(ms), Deadline: at(ms + slo)}, now, load)
		}
		for {
			d := q.Decide(now, load)
			if len(d.Fire) == 0 {
				break
			}
			chosen := &replicas[d.Replica]
			chosen.Busy, chosen.FreeAt = true, now.Add(chosen.Latency(1))
			if chosen.FreeAt.After(d.Fire[0].Deadline) {
				t.Fatalf("request %d is late", d.Fire[0].ID)
			}
			answered[d.Replica]++
		}
	}
	for i, takes := range []int{fast, slow} {
		if most := length / takes; answered[i] < most*95/100 {
			t.Errorf("replica %d answers %d, want nearly %d", i, answered[i], most)
		}
	}
}

// TestTooSlowForAll: a replica with many places and large batches that is too slow for all that waits is looked at once, and not with each size of a batch,
// as that is done for each request that comes.
func TestTooSlowForAll(t *testing.T) {
	const places, maxBatch = 256, 4096
	q := queue(t, Config{MaxBatch: maxBatch})
	for id := range uint64(maxBatch) {
		q.Add(Request{ID: id, Deadline: at(50)}, at(0), Load{Replicas: []Replica{{Latency: tenEach}}})
	}
	asked := 0
	slow := Replica{ID: 1, Latency: func(int) time.Duration { asked++; return 100 * time.Millisecond }}
	load := Load{Replicas: []Replica{{ID: 2, Busy: true, FreeAt: at(20), Latency: tenEach}}}
	for range places {
		load.Replicas = append(load.Replicas, slow)
	}
	if d := q.Decide(at(0), load); len(d.Fire)+len(d.Refused) > 0 {
		t.Errorf("decided %+v", d)
	}
	if asked > 3*places { // twice for each to find the fastest and who is in time for the head
		t.Errorf("it was asked for its latency %d times", asked)
	}
}

// TestLaterOnesEndTheWait: what waited for another request to come, and was given to a slow replica, does not shorten the wait of what comes after it.
func TestLaterOnesEndTheWait(t *testing.T) {
	fast := Replica{ID: 1, Latency: func(int) time.Duration { return 10 * time.Millisecond }}
	slow := Replica{ID: 2, Latency: func(int) time.Duration { return 50 * time.Millisecond }}
	q := queue(t, Config{MaxBatch: 4})
	load := func(fastIsBusy bool) Load {
		fast.Busy, fast.FreeAt = fastIsBusy, at(25)
		return Load{Replicas: []Replica{fast, slow}, Rate: 1000}
	}
	add := func(id uint64, deadline, now int) {
		if r := (Request{ID: id, Deadline: at(deadline)}); !q.Add(r, at(now), load(false)) {
			t.Fatalf("request %d is refused", id)
		}
	}
	add(1, 1000, 0)
	if d := q.Decide(at(0), load(false)); !d.Wake.Equal(at(10)) {
		t.Fatalf("the first one: %+v", d)
	}
	add(2, 36, 5)
	if d := q.Decide(at(5), load(true)); d.Replica != 2 || len(d.Fire) != 1 || d.Fire[0].ID != 1 {
		t.Fatalf("the slow replica: %+v", d)
	}
	q.Remove(Request{ID: 2, Deadline: at(36)}) // its client has left
	add(3, 1000, 20)
	if d := q.Decide(at(20), load(false)); !d.Wake.Equal(at(30)) {
		t.Errorf("the next one: %+v, want to wait until 30 ms", d)
	}
}

// TestPredictedWait compares the prediction for replicas that differ with counting: each takes a full batch whenever it is free.
func TestPredictedWait(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 4))
	for range 300 {
		q := queue(t, Config{MaxBatch: 1 + r.IntN(8)})
		var replicas []Replica
		for id := range 1 + r.IntN(4) {
			x := Replica{ID: id, Busy: r.IntN(2) == 0, FreeAt: at(r.IntN(50) - 10), MaxBatch: r.IntN(5)}
			if r.IntN(2) == 0 {
				takes := time.Duration(1+r.IntN(30)) * time.Millisecond
				x.Latency = func(int) time.Duration { return takes }
			}
			replicas = append(replicas, x)
		}
		free := make([]time.Duration, len(replicas))
		for i := range replicas {
			free[i] = replicas[i].wait(at(0))
		}
		begun := 0
		for n := range 60 {
			var start time.Duration
			for begun <= n { // the replica that is free first takes the next batch
				next := 0
				for i := range free {
					if free[i] < free[next] {
						next = i
					}
				}
				start = free[next]
				begun += q.maxBatch(&replicas[next])
				free[next] += q.latency(&replicas[next], q.maxBatch(&replicas[next]))
			}
			if got := q.predictWait(n, at(0), replicas); start > 0 && got != start {
				t.Fatalf("behind %d requests: %v, want %v on %+v", n, got, start, replicas)
			}
		}
	}
}

// TestFurtherCredits: a replica that is listed more often, for credits that are free until the same time, changes nothing once it is listed once for
// each queued request and the next one.
func TestFurtherCredits(t *testing.T) {
	r := rand.New(rand.NewPCG(6, 6))
	for range 500 {
		few, many := queue(t, Config{MaxBatch: 1 + r.IntN(4)}), queue(t, Config{MaxBatch: 4})
		many.config = few.config
		var some, all Load
		requests := r.IntN(6)
		for id := range 1 + r.IntN(3) {
			x := Replica{ID: id, Busy: r.IntN(2) == 0, FreeAt: at(r.IntN(50) - 10)}
			takes := time.Duration(1+r.IntN(30)) * time.Millisecond
			x.Latency = func(batch int) time.Duration { return takes + time.Duration(batch)*time.Millisecond }
			if busy := (Replica{ID: id, Busy: true, FreeAt: at(r.IntN(60)), Latency: x.Latency}); r.IntN(2) == 0 { // a credit in use
				some.Replicas, all.Replicas = append(some.Replicas, busy), append(all.Replicas, busy)
			}
			some.Replicas = append(some.Replicas, slices.Repeat([]Replica{x}, requests+1)...)
			all.Replicas = append(all.Replicas, slices.Repeat([]Replica{x}, requests+1+r.IntN(40))...)
		}
		for n := range requests {
			x := Request{ID: uint64(n), Deadline: at(10 + r.IntN(80))}
			few.tree.add(x)
			many.tree.add(x)
		}
		x := Request{ID: 100, Deadline: at(r.IntN(80))}
		if a, b := few.PredictFinish(x, at(0), some), many.PredictFinish(x, at(0), all); !a.Equal(b) {
			t.Fatalf("%d requests finish at %v with few credits, at %v with all of %+v", requests, a, b, all)
		}
		if a, b := few.Decide(at(0), some), many.Decide(at(0), all); !reflect.DeepEqual(a, b) {
			t.Fatalf("%d requests: %+v with few credits, %+v with all of %+v", requests, a, b, all)
		}
	}
}
