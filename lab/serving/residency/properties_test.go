package residency

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/gshare-dev/gshare/serving/rules/pipeline"
	"github.com/gshare-dev/gshare/serving/rules/scaling"
	"github.com/gshare-dev/gshare/serving/rules/scaling/pool"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// checker holds a node to what is promised of it, from outside: it keeps its own book of requests.
type checker struct {
	*testing.T
	node    *Node
	waiting map[uint64]bool
	running map[string]Start // by slice
	starts  []Start          // all, to compare runs
	left    map[string]bool  // functions that are hot elsewhere
}

func newChecker(t *testing.T, p Policy, functions int) *checker {
	n, err := New(p)
	if err != nil {
		t.Fatal(err)
	}
	c := &checker{T: t, node: n, waiting: map[uint64]bool{}, running: map[string]Start{}, left: map[string]bool{}}
	for i := range functions {
		f := testFunction(fmt.Sprint("f", i), fmt.Sprint("t", i%2), 1+5*i%17, time.Duration(20+30*i)*ms)
		if i%3 == 2 {
			delete(f.Times, "1g.10gb")
		}
		if err := n.Register(f); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

func (c *checker) enqueue(now time.Duration, id uint64, function string, deadline time.Duration) {
	if err := c.node.Enqueue(now, Request{id, function, deadline}); err != nil {
		c.Fatal(err)
	}
	c.waiting[id] = true
	delete(c.left, function)
}

func (c *checker) leave(now time.Duration, function string) {
	for _, r := range c.node.RemovePromoted(now, function) {
		c.gone(r)
	}
	c.left[function] = true
}

func (c *checker) gone(r Request) {
	if !c.waiting[r.ID] {
		c.Fatalf("request %+v is dealt with twice", r)
	}
	delete(c.waiting, r.ID)
}

func (c *checker) dispatch(now time.Duration) {
	before := map[string]scaling.Residency{}
	for _, f := range c.node.order {
		before[f.Name] = c.node.Residency(f.Name)
	}
	d := c.node.Dispatch(now)
	for _, r := range d.Refused {
		c.gone(r)
	}
	for _, s := range d.Starts {
		c.gone(s.Request)
		if other, busy := c.running[s.Slice]; busy {
			c.Fatalf("%+v starts beside %+v", s, other)
		}
		for _, r := range c.running {
			if r.Request.Function == s.Request.Function || slices.Contains(s.Evicted, r.Request.Function) {
				c.Fatalf("%+v runs while %+v starts: it runs twice, or is evicted (U11)", r, s)
			}
		}
		for _, e := range s.Evicted {
			if c.left[e] {
				c.Fatalf("%s is hot and evicted by %+v", e, s)
			}
		}
		if (s.Source == Resident) != (s.Load == 0) || s.Source == Resident && (len(s.Evicted) > 0 || s.Scrub) {
			c.Fatalf("%+v: data that are there are loaded, or others are not", s)
		}
		if s.Source == Resident && before[s.Request.Function] != scaling.Shared {
			c.Fatalf("%+v was not on a slice before", s)
		}
		c.running[s.Slice], c.starts = s, append(c.starts, s)
	}
	c.conserves()
}

func (c *checker) finish(now time.Duration, id string) {
	if err := c.node.Finish(now, id); err != nil {
		c.Fatal(err)
	}
	delete(c.running, id)
}

func (c *checker) lose(now time.Duration, id string) {
	r, ran := c.node.LoseSlice(now, id)
	if s, running := c.running[id]; running != ran || ran && s.Request != r {
		c.Fatalf("lost %+v, but %+v ran", r, s)
	}
	delete(c.running, id)
}

// account recounts the memory: what is on a slice and in the host fits (spec 5.5, 11), and nothing is in two places.
func (c *checker) account() {
	places := map[*function]int{}
	for _, s := range c.node.slices {
		used := share.Bytes(0)
		for _, f := range s.residents {
			used += f.Memory
			places[f]++
			if f.on != s {
				c.Fatalf("%s lies on %s, and says another", f.Name, s.ID)
			}
		}
		if used > s.Kind.Memory || s.free != s.Kind.Memory-used || (s.running == nil) != (c.running[s.ID].Slice == "") {
			c.Fatalf("slice %s: %d used, %d free of %d; runs %v", s.ID, used, s.free, s.Kind.Memory, s.running)
		}
	}
	held := share.Bytes(0)
	for _, f := range c.node.host.held {
		held += f.Memory
		places[f]++
	}
	if held != c.node.host.used || held > c.node.host.limit {
		c.Fatalf("host memory: %d of %d, noted %d", held, c.node.host.limit, c.node.host.used)
	}
	waiting := 0
	for _, f := range c.node.order {
		waiting += c.node.Waiting(f.Name)
		if places[f] > 1 || places[f] > 0 && !f.exists || f.waiting.len() > 0 && !f.exists {
			c.Fatalf("%s is in %d places; there is an instance: %v; %d wait", f.Name, places[f], f.exists, f.waiting.len())
		}
	}
	if waiting != len(c.waiting) {
		c.Fatalf("%d wait, want %d", waiting, len(c.waiting))
	}
}

// conserves: no slice is idle while a function that could run there waits, but for one whose own slice is faster to wait for.
func (c *checker) conserves() {
	for _, f := range c.node.order {
		if f.waiting.len() == 0 || f.running || f.on != nil && f.on.running != nil {
			continue
		}
		for _, s := range c.node.slices {
			if s.running == nil && s.executionTime(f) > 0 {
				c.Fatalf("%s waits while %s is idle", f.Name, s.ID)
			}
		}
	}
}

// drive lets a random load run on a random node.
func drive(t *testing.T, seed uint64) *checker {
	random := rand.New(rand.NewPCG(seed, 1))
	c := newChecker(t, Policy{Host: share.Bytes(random.IntN(40)) * gb, Refuse: seed%2 == 0, Window: time.Second, Thresholds: pool.Thresholds{ColdAfter: 5 * time.Second, Stay: time.Second}}, 7)
	names := slices.Sorted(func(yield func(string) bool) {
		for name := range kinds {
			yield(name)
		}
	})
	now, slice := time.Duration(0), 0
	for id := range uint64(400) {
		now += time.Duration(random.ExpFloat64() * float64(40*ms))
		switch name := fmt.Sprint("f", random.IntN(7)); random.IntN(12) {
		case 0:
			if len(c.node.slices) < 5 {
				slice++
				if err := c.node.AddSlice(now, pipeline.Slice{ID: fmt.Sprint(slice), Kind: kinds[names[random.IntN(3)]]}); err != nil {
					t.Fatal(err)
				}
			}
		case 1:
			for _, a := range c.node.Review(now) {
				switch {
				case a.Action == Shrink:
					if err := c.node.RemoveSlice(now, a.Slice); err != nil {
						t.Fatal(err)
					}
				case a.Action == Promote:
					c.leave(now, a.Function)
				}
			}
		case 2:
			if random.IntN(8) == 0 && len(c.node.slices) > 0 {
				c.lose(now, c.node.slices[random.IntN(len(c.node.slices))].ID)
			}
		case 3:
			if random.IntN(4) == 0 {
				c.leave(now, name)
			} else {
				c.node.AddDemoted(now, name)
				delete(c.left, name)
			}
		case 4, 5, 6, 7:
			for _, s := range c.node.slices {
				if s.running != nil && s.until <= now {
					c.finish(now, s.ID)
				}
			}
		default:
			c.enqueue(now, id, name, now+time.Duration(random.IntN(3000))*ms)
		}
		c.dispatch(now)
		c.account()
	}
	return c
}

func TestNodeProperties(t *testing.T) {
	var evicted, scrubbed, host int
	for seed := range uint64(100) {
		c, again := drive(t, seed), drive(t, seed)
		if fmt.Sprint(c.starts) != fmt.Sprint(again.starts) {
			t.Fatalf("seed %d: not deterministic", seed)
		}
		for _, s := range c.starts {
			evicted += len(s.Evicted)
			if s.Scrub {
				scrubbed++
			}
			if s.Source == Host {
				host++
			}
		}
	}
	if evicted < 150 || scrubbed < 150 || host < 150 {
		t.Errorf("only %d evictions, %d scrubs, %d loads from host memory: the load tests little", evicted, scrubbed, host)
	}
}

// FuzzNode makes arbitrary sequences of calls at arbitrary times.
func FuzzNode(f *testing.F) {
	f.Add([]byte{0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, int64(5), int64(1000))
	f.Add([]byte{1, 1, 1, 17, 33, 2, 2, 3, 3, 5, 5, 4, 4, 6}, int64(1<<62), int64(-1<<62))
	f.Fuzz(func(t *testing.T, calls []byte, step, deadline int64) {
		c := newChecker(t, Policy{Host: 20 * gb, Refuse: step%2 == 0}, 4)
		now := time.Duration(0)
		for i, call := range calls[:min(len(calls), 200)] {
			name, id := fmt.Sprint("f", call>>4%4), fmt.Sprint("s", call>>4%3)
			now += time.Duration(step) / time.Duration(1+call>>4)
			switch call % 8 {
			case 0:
				_ = c.node.AddSlice(now, pipeline.Slice{ID: id, Kind: kinds[[]string{"1g.10gb", "2g.20gb", "4g.40gb"}[call>>4%3]]})
			case 1:
				_ = c.node.RemoveSlice(now, id)
			case 2:
				c.lose(now, id)
			case 3:
				if c.node.Enqueue(now, Request{uint64(i), name, time.Duration(deadline) + now}) == nil {
					c.waiting[uint64(i)] = true
					delete(c.left, name)
				}
			case 4:
				if c.node.Finish(now, id) == nil {
					delete(c.running, id)
				}
			case 5:
				c.leave(now, name)
			case 6:
				c.node.AddDemoted(now, name)
				delete(c.left, name)
			case 7:
				c.node.Review(now)
			}
			c.dispatch(now)
			c.account()
		}
	})
}

// BenchmarkRequest is all calls for one request: 50 functions on 8 slices that most of them fit together.
func BenchmarkRequest(b *testing.B) {
	n, err := New(Policy{Host: 200 * gb})
	if err != nil {
		b.Fatal(err)
	}
	for i := range 50 {
		if err := n.Register(testFunction(fmt.Sprint(i), "t", 4, 50*ms)); err != nil {
			b.Fatal(err)
		}
	}
	for i := range 8 {
		if err := n.AddSlice(0, pipeline.Slice{ID: fmt.Sprint(i), Kind: kinds["4g.40gb"]}); err != nil {
			b.Fatal(err)
		}
	}
	now, id := time.Duration(0), uint64(0)
	for b.Loop() {
		now, id = now+10*ms, id+1
		if err := n.Enqueue(now, Request{id, n.order[id%50].Name, now + time.Second}); err != nil {
			b.Fatal(err)
		}
		n.Dispatch(now)
		for _, s := range n.slices {
			if s.running != nil && s.until <= now {
				if err := n.Finish(now, s.ID); err != nil {
					b.Fatal(err)
				}
				n.Dispatch(now)
			}
		}
	}
}
