package residency

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

func setWant(t *testing.T, n *Node, now time.Duration, function string, deadline time.Duration, requests int) {
	t.Helper()
	if err := n.SetWant(now, Want{function, deadline, requests}); err != nil {
		t.Fatal(err)
	}
}

// carryOut dispatches and does all steps at once.
func carryOut(t *testing.T, n *Node, now time.Duration) (done []Step) {
	t.Helper()
	n.Dispatch(now)
	for steps := n.Steps(); len(steps) > 0; steps = n.Steps() {
		for _, s := range steps {
			end := n.Loaded
			if s.Move == Evict {
				end = n.Evicted
			}
			if err := end(now, s.Function); err != nil {
				t.Fatal(err)
			}
		}
		done = append(done, steps...)
	}
	return done
}

// A turn has no bound until another function needs the slice. Then it lasts as long as the policy says, or as long as the other one can wait.
func TestTurnBounds(t *testing.T) {
	const now = 10 * time.Second // a runs for 1 s, b is loaded for 1 s and runs for 1 s
	for name, c := range map[string]struct {
		slices   int
		deadline time.Duration
		want     Lease
	}{
		"the other one has time":          {1, time.Hour, Lease{1, "a", "s0", 3, now + 500*ms}},
		"it has to be loaded soon":        {1, now + 3200*ms, Lease{1, "a", "s0", 3, now + 200*ms}},
		"it has to be loaded at once":     {1, now + 2*time.Second, Lease{1, "a", "s0", 3, now}},
		"it is late in any case":          {1, now + 2*time.Second - 1, Lease{1, "a", "s0", 3, now + 500*ms}},
		"it has another slice":            {2, now + 3*time.Second, Lease{1, "a", "s0", 0, maxInstant}},
		"it has nothing to do, of itself": {1, 0, Lease{1, "a", "s0", 0, maxInstant}},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, Policy{Turn: Turn{Requests: 3, For: 500 * ms}}, 2, c.slices)
			setWant(t, n, 0, "a", time.Minute, 5)
			carryOut(t, n, 0)
			if got := n.Leases(time.Second); len(got) != 1 || got[0] != (Lease{1, "a", "s0", 0, maxInstant}) {
				t.Fatalf("alone: %+v", got)
			}
			if c.deadline > 0 {
				setWant(t, n, now, "b", c.deadline, 1)
			}
			carryOut(t, n, now)
			if got := n.Leases(now); got[0] != c.want {
				t.Errorf("%+v, want %+v", got[0], c.want)
			}
			n.Dispatch(now + 100*ms)
			if got := n.Leases(now + 100*ms); c.want.Until == now+500*ms && got[0] != c.want {
				t.Errorf("later: %+v, want %+v", got[0], c.want)
			}
			setWant(t, n, now+200*ms, "b", 0, 0)
			n.Dispatch(now + 200*ms)
			if got := n.Leases(now + 200*ms); got[0] != (Lease{1, "a", "s0", 0, maxInstant}) {
				t.Errorf("alone again: %+v", got[0])
			}
		})
	}
}

// Of two turns the one that began first ends for a function that waits, and the other goes on.
func TestOneTurnEndsForOne(t *testing.T) {
	n := newNode(t, Policy{}, 3, 2)
	setWant(t, n, 0, "a", time.Minute, 1)
	carryOut(t, n, 0)
	setWant(t, n, 1, "b", time.Minute, 1)
	carryOut(t, n, 1)
	setWant(t, n, time.Second, "c", time.Hour, 1)
	carryOut(t, n, time.Second)
	got := n.Leases(time.Second)
	if want := []Lease{{1, "a", "s0", 64, 2 * time.Second}, {2, "b", "s1", 0, maxInstant}}; !slices.Equal(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// A function whose turn ended since another one waits does not go first again because its data are there. One whose turn had no bound does.
func TestTurnYields(t *testing.T) {
	for _, bounded := range []bool{true, false} {
		n := newNode(t, Policy{}, 2, 1)
		setWant(t, n, 0, "a", time.Hour, 1)
		carryOut(t, n, 0)
		if bounded {
			setWant(t, n, time.Second, "b", time.Hour, 1)
			n.Dispatch(time.Second)
			n.Leases(time.Second)
		}
		setWant(t, n, 2*time.Second, "a", time.Hour, 1)
		if n.FinishTurn(2*time.Second, 2) || !n.FinishTurn(2*time.Second, 1) {
			t.Fatal("the only turn is not the first one")
		}
		setWant(t, n, 2*time.Second, "b", time.Hour, 1)
		want := map[bool]string{true: "b", false: "a"}[bounded]
		if d := n.Dispatch(2 * time.Second); len(d.Starts) != 1 || d.Starts[0].Request.Function != want {
			t.Errorf("the turn had a bound: %v; %+v, want %s", bounded, d.Starts, want)
		}
	}
}

// A turn that lasts beyond the deadline of its first request is not late by that, as a request is.
func TestTurnIsNotLate(t *testing.T) {
	for _, turn := range []bool{true, false} {
		n := newNode(t, Policy{}, 1, 1)
		if turn {
			setWant(t, n, 0, "a", 3*time.Second, 9)
		} else {
			enqueue(t, n, 0, 1, "a", 3*time.Second)
		}
		carryOut(t, n, 0)
		if err := n.Finish(20*time.Second, "s0"); err != nil {
			t.Fatal(err)
		}
		if late := n.outcomes.lateRatio(20*time.Second, time.Minute); (late > 0) == turn {
			t.Errorf("a turn: %v; late: %d per mille", turn, late)
		}
	}
}

// What lies on the slice is evicted before another function is loaded.
func TestSteps(t *testing.T) {
	n := newNode(t, Policy{}, 2, 1)
	setWant(t, n, 0, "a", time.Minute, 1)
	if got := fmt.Sprint(carryOut(t, n, 0)); got != "[{load a s0}]" {
		t.Fatal(got)
	}
	if err := n.Finish(time.Second, "s0"); err != nil {
		t.Fatal(err)
	}
	setWant(t, n, time.Second, "b", time.Minute, 1)
	n.Dispatch(time.Second)
	if got := fmt.Sprint(n.Steps(), n.Steps(), n.Leases(time.Second)); got != "[{evict a s0}] [] []" {
		t.Errorf("first %s", got)
	}
	if err := n.Loaded(time.Second, "b"); err == nil {
		t.Error("b is loaded and was not told to")
	}
	if err := n.RemoveSlice(time.Second, "s0"); err == nil {
		t.Error("a slice is removed of which a process holds memory")
	}
	if err := n.Evicted(2*time.Second, "a"); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(n.Steps(), n.Leases(2*time.Second)); got != "[{load b s0}] []" {
		t.Errorf("then %s", got)
	}
	if err := n.Loaded(3*time.Second, "b"); err != nil {
		t.Fatal(err)
	}
	if got := n.Leases(3 * time.Second); len(got) != 1 || got[0].Function != "b" {
		t.Errorf("at last %+v", got)
	}
}

// A load that fails is evicted, and tried again after pauses that double. The other function has turns in the meantime.
func TestFailedLoads(t *testing.T) {
	n := newNode(t, Policy{}, 2, 1)
	now := time.Duration(0)
	for try, pause := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second} {
		setWant(t, n, now, "a", time.Hour, 1)
		if n.Dispatch(now); fmt.Sprint(n.Steps()) != "[{load a s0}]" {
			t.Fatalf("try %d: a is not loaded", try)
		}
		if r, ran, err := n.Failed(now, "a"); err != nil || !ran || r.Function != "a" {
			t.Fatalf("%+v, %v, %v", r, ran, err)
		}
		if _, _, err := n.Failed(now, "a"); err == nil {
			t.Error("the same load fails twice")
		}
		if err := n.Evicted(now, "a"); err == nil {
			t.Error("a is evicted and was not told to")
		}
		setWant(t, n, now, "a", time.Hour, 1)
		setWant(t, n, now, "b", time.Hour, 1)
		if got := fmt.Sprint(carryOut(t, n, now)); got != "[{evict a s0} {load b s0}]" {
			t.Errorf("try %d: %s", try, got)
		}
		setWant(t, n, now, "b", 0, 0)
		if err := n.Finish(now, "s0"); err != nil {
			t.Fatal(err)
		}
		if d := n.Dispatch(now + pause - 1); len(d.Starts) > 0 {
			t.Errorf("try %d: %+v too early", try, d.Starts)
		}
		now += pause
		n.Ended(now, "b")
	}
	setWant(t, n, now, "a", time.Hour, 1)
	carryOut(t, n, now)
	if f := n.functions["a"]; f.place.failed != 0 {
		t.Errorf("%d failures are not forgotten", f.place.failed)
	}
}

// The memory of a process that has ended is free, also in the middle of its turn, and the function is loaded from storage again.
func TestEnded(t *testing.T) {
	n := newNode(t, Policy{}, 2, 1)
	setWant(t, n, 0, "a", time.Minute, 1)
	carryOut(t, n, 0)
	if r, ran := n.Ended(time.Second, "a"); !ran || r.Function != "a" {
		t.Errorf("%+v, %v", r, ran)
	}
	if _, ran := n.Ended(time.Second, "a"); ran || n.FinishTurn(time.Second, 1) {
		t.Error("it had two turns")
	}
	if _, ran := n.Ended(time.Second, "nobody"); ran || n.Residency("a").String() != "Cold" || len(n.Leases(time.Second)) > 0 {
		t.Errorf("a is %v, with the leases %+v", n.Residency("a"), n.Leases(time.Second))
	}
	setWant(t, n, time.Second, "b", time.Minute, 1)
	if got := fmt.Sprint(carryOut(t, n, time.Second)); got != "[{load b s0}]" {
		t.Error(got)
	}
}

// A function whose process cannot move waits for its slice.
func TestOnlySlice(t *testing.T) {
	n := newNode(t, Policy{}, 0, 2)
	for _, name := range []string{"a", "b"} {
		f := testFunction(name, "t", 6, time.Second)
		f.Slice = "s1"
		if err := n.Register(f); err != nil {
			t.Fatal(err)
		}
		setWant(t, n, 0, name, time.Hour, 1)
	}
	if got := fmt.Sprint(carryOut(t, n, 0)); got != "[{load a s1}]" {
		t.Error(got)
	}
}

func TestWantRefuses(t *testing.T) {
	n := newNode(t, Policy{}, 1, 1)
	wantField(t, "function", n.SetWant(0, Want{"b", 0, 1}))
	wantField(t, "deadline", n.SetWant(0, Want{"a", maxInstant + 1, 1}))
	wantField(t, "requests", n.SetWant(0, Want{"a", 0, -1}))
}

// The time that loads are expected to take follows what they take, each by where the data were.
func TestLoadIsLearned(t *testing.T) {
	n := newNode(t, Policy{}, 1, 1)
	f, now := n.functions["a"], time.Duration(0)
	for i, c := range []struct{ takes, warm, cold time.Duration }{
		{3 * time.Second, 100 * ms, 2 * time.Second}, // from storage, where 1 s was expected
		{500 * ms, 300 * ms, 2 * time.Second},        // from the host
		{6 * time.Second, 3150 * ms, 3150 * ms},      // which is not slower than storage
	} {
		setWant(t, n, now, "a", now+time.Hour, 1)
		n.Dispatch(now)
		if steps := n.Steps(); len(steps) != 1 {
			t.Fatalf("%+v", steps)
		}
		now += c.takes
		if err := n.Loaded(now, "a"); err != nil {
			t.Fatal(err)
		}
		if f.LoadWarm != c.warm || f.LoadCold != c.cold {
			t.Errorf("load %d: %v and %v, want %v and %v", i, f.LoadWarm, f.LoadCold, c.warm, c.cold)
		}
		if err := n.Finish(now, "s0"); err != nil {
			t.Fatal(err)
		}
		n.evict(f) // as for another function
		for _, s := range n.Steps() {
			if err := n.Evicted(now, s.Function); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// The time to evict what is on the slice is a part of the load for which that has to be done.
func TestEvictionIsLearned(t *testing.T) {
	n := newNode(t, Policy{}, 2, 1)
	setWant(t, n, 0, "a", time.Hour, 1)
	carryOut(t, n, 0)
	if err := n.Finish(time.Second, "s0"); err != nil {
		t.Fatal(err)
	}
	setWant(t, n, 10*time.Second, "b", time.Hour, 1)
	n.Dispatch(10 * time.Second)
	n.Steps()
	if err := n.Evicted(12*time.Second, "a"); err != nil {
		t.Fatal(err)
	}
	n.Steps()
	if err := n.Loaded(15*time.Second, "b"); err != nil {
		t.Fatal(err)
	}
	if got := n.functions["b"].LoadCold; got != 3*time.Second {
		t.Errorf("%v, want the mean of 1 s and 5 s", got)
	}
}

// A function that is late in any case, as its load is expected to take long, has a turn now and then although another one is always in time. Of two the
// one goes first that has had none for longer. Requests that the node has, not somebody else, wait behind all others.
func TestNeglected(t *testing.T) {
	const now = time.Minute
	for name, c := range map[string]struct {
		before time.Duration // since one went first
		late   []string      // in the order of their deadlines
		want   string
	}{
		"nobody is late":                   {time.Minute, nil, "a"},
		"one went first nine loads ago":    {9 * time.Second, []string{"b"}, "a"},
		"one went first ten loads ago":     {10 * time.Second, []string{"b"}, "b"},
		"the other one is due before":      {time.Minute, []string{"c", "b"}, "b"},
		"it is due before the other one":   {time.Minute, []string{"b", "c"}, "b"},
		"only the one that has had a turn": {time.Minute, []string{"c"}, "c"},
		"and that less than ten loads ago": {999 * ms, []string{"c"}, "a"}, // from the host, 100 ms
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, Policy{}, 3, 1)
			setWant(t, n, 0, "c", time.Hour, 1)
			carryOut(t, n, 0)
			if err := n.Finish(time.Second, "s0"); err != nil {
				t.Fatal(err)
			}
			n.evict(n.functions["c"])
			n.lastLate = now - c.before
			setWant(t, n, now, "c", 0, 0)
			setWant(t, n, now, "a", time.Hour, 1)
			for i, f := range c.late {
				setWant(t, n, now, f, now+time.Duration(i+1), 1)
			}
			if d := n.Dispatch(now); len(d.Starts) != 1 || d.Starts[0].Request.Function != c.want {
				t.Errorf("%+v, want %s", d.Starts, c.want)
			}
		})
	}
	n := newNode(t, Policy{}, 2, 1)
	enqueue(t, n, time.Minute, 1, "a", time.Hour)
	enqueue(t, n, time.Minute, 2, "b", time.Minute)
	if d := n.Dispatch(time.Minute); len(d.Starts) != 1 || d.Starts[0].Request.Function != "a" {
		t.Errorf("%+v, want a", d.Starts)
	}
}
