package residency

import (
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/gshare-dev/gshare/serving/rules/pipeline"
	"github.com/gshare-dev/gshare/serving/rules/scaling"
	"github.com/gshare-dev/gshare/serving/rules/scaling/pool"
	"github.com/gshare-dev/gshare/vgpu/share"
)

func wantField(t *testing.T, field string, err error) {
	t.Helper()
	if e, ok := errors.AsType[*share.FieldError](err); !ok || e.Field != strings.TrimRight(field, " ") {
		t.Errorf("error %v, want one of field %q", err, field)
	}
}

func TestNewRefuses(t *testing.T) {
	for field, p := range map[string]Policy{
		"up, down":  {Thresholds: pool.Thresholds{Up: 300, Down: 300}},
		"up, down ": {Thresholds: pool.Thresholds{Up: 1001}}, "up, down  ": {Thresholds: pool.Thresholds{Down: -1}},
		"window": {Window: -1}, "window ": {Window: math.MaxInt64},
		"stay": {Thresholds: pool.Thresholds{Stay: -1}}, "coldAfter": {Thresholds: pool.Thresholds{ColdAfter: -1}},
		"coldAfter ": {Thresholds: pool.Thresholds{ColdAfter: math.MaxInt64}},
		"host":       {Host: -1}, "host ": {Host: math.MaxInt64}, "misses": {Misses: -1},
	} {
		_, err := New(p)
		wantField(t, field, err)
	}
}

func TestNodeRefuses(t *testing.T) {
	n, err := New(Policy{})
	if err != nil {
		t.Fatal(err)
	}
	good := func() Function { return testFunction("a", "t", 5, 50*ms) }
	for field, broken := range map[string]func(*Function){
		"name":     func(f *Function) { f.Name = "" },
		"memory":   func(f *Function) { f.Memory = 0 },
		"memory ":  func(f *Function) { f.Memory = math.MaxInt64 },
		"loadWarm": func(f *Function) { f.LoadWarm = -1 },
		"loadCold": func(f *Function) { f.LoadCold = f.LoadWarm - 1 },
		"times":    func(f *Function) { f.Times = nil },
		"times ":   func(f *Function) { f.Times["1g.10gb"] = 0 },
		"times  ":  func(f *Function) { f.Times["2g.20gb"] = math.MaxInt64 },
	} {
		f := good()
		broken(&f)
		wantField(t, field, n.Register(f))
	}
	if err := n.Register(good()); err != nil {
		t.Fatal(err)
	}
	least := good()
	least.Name, least.Memory, least.LoadWarm, least.LoadCold = "least", 1, 0, 0
	most := good()
	most.Name, most.Memory, most.LoadWarm, most.LoadCold = "most", share.MaxMemory, maxTime, maxTime
	for _, f := range []Function{least, most} {
		if err := n.Register(f); err != nil {
			t.Error(err)
		}
	}
	wantField(t, "name", n.Register(good()))
	wantField(t, "id", n.AddSlice(0, pipeline.Slice{Kind: kinds["1g.10gb"]}))
	wantField(t, "memory", n.AddSlice(0, pipeline.Slice{ID: "s"}))
	wantField(t, "id", n.RemoveSlice(0, "s"))
	wantField(t, "slice", n.Finish(0, "s"))
	wantField(t, "function", n.Enqueue(0, Request{Function: "b"}))
	wantField(t, "deadline", n.Enqueue(0, Request{Function: "a", Deadline: math.MaxInt64}))
	const century = 100 * 365 * 24 * time.Hour
	wantField(t, "deadline", n.Enqueue(0, Request{Function: "a", Deadline: century + 1}))
	wantField(t, "deadline", n.Enqueue(0, Request{Function: "a", Deadline: -century - 1}))
	if n.RemovePromoted(0, "b") != nil || n.Residency("b") != scaling.Cold || n.Waiting("b") != 0 {
		t.Error("a function that nobody registered is somewhere")
	}
}

// The meter agrees with counting milliseconds.
func TestMeterAgainstCounting(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	for range 200 {
		var m Meter
		used, now := make([]bool, 2000), 0
		for now < 1900 {
			from := now + random.IntN(20)
			to := from + random.IntN(30)
			m.Add(time.Duration(from)*ms, time.Duration(to)*ms)
			for i := from; i < to; i++ {
				used[i] = true
			}
			now = to + random.IntN(3)
			count := 0
			for i := max(0, now-100); i < now; i++ {
				if used[i] {
					count++
				}
			}
			if got := m.Utilisation(time.Duration(now)*ms, 100*ms); got != share.PerMille(count*10) {
				t.Fatalf("at %d ms: %d per mille, want %d", now, got, count*10)
			}
		}
	}
	var ahead Meter
	ahead.Add(0, 100*ms)
	if got := ahead.Utilisation(50*ms, 100*ms); got != 500 {
		t.Errorf("use that goes on: %d per mille until now, want 500", got)
	}
	var m Meter
	m.Add(10*ms, 20*ms)
	m.Add(15*ms, 18*ms) // lies in the one before
	m.Add(19*ms, 30*ms)
	if got := m.Utilisation(30*ms, 40*ms); got != 500 || m.Utilisation(30*ms, 0) != 0 {
		t.Errorf("overlapping spans: %d per mille, want 500", got)
	}
}

// TestEventsAdvanceTheClock: every event moves the node's clock, also one that changes nothing; it never moves back.
func TestEventsAdvanceTheClock(t *testing.T) {
	n, err := New(Policy{})
	if err != nil {
		t.Fatal(err)
	}
	if _, ran := n.LoseSlice(5*time.Second, "unknown"); ran || n.now != 5*time.Second {
		t.Errorf("after the loss of a slice it is %v", n.now)
	}
	wantField(t, "id", n.RemoveSlice(6*time.Second, "unknown"))
	wantField(t, "id", n.AddSlice(7*time.Second, pipeline.Slice{}))
	if n.now != 7*time.Second {
		t.Errorf("it is %v, want 7 s", n.now)
	}
	if n.LoseSlice(time.Second, "unknown"); n.now != 7*time.Second {
		t.Errorf("the clock went back to %v", n.now)
	}
}
