package scaling

import (
	"slices"
	"testing"
	"time"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// size is a configuration that serves ten requests/s per instance.
var size = Configuration{Share: share.Share{SMRequest: 120, QuotaRequest: 400}, Throughput: 10}

func newScaler(t testing.TB, policy Policy, choices ...Configuration) *Scaler {
	t.Helper()
	s, err := New(policy, choices)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// run is a function under a scaler, second by second.
type run struct {
	t      testing.TB
	scaler *Scaler
	state  State
	now    time.Duration
}

func start(t testing.TB, policy Policy) *run {
	return &run{t: t, scaler: newScaler(t, policy, size)}
}

// load applies a load for so many seconds and returns the decisions.
func (r *run) load(load Rate, seconds int) []Decision {
	r.t.Helper()
	var all []Decision
	for range seconds {
		r.now += time.Second
		decisions, state, err := r.scaler.Decide(r.now, Load{Rate: load}, r.state)
		if err != nil {
			r.t.Fatal(err)
		}
		all, r.state = append(all, decisions...), state
	}
	return all
}

func (r *run) want(what string, decisions []Decision, want ...Decision) {
	r.t.Helper()
	got := slices.Clone(decisions)
	for i := range got {
		got[i].Instance = Instance{ID: got[i].Instance.ID, Residency: got[i].Instance.Residency}
	}
	if !slices.Equal(got, want) {
		r.t.Errorf("%s: %v, want %v", what, got, want)
	}
}

func (r *run) count(residency Residency) int {
	n := 0
	for _, i := range r.state.Instances {
		if i.Residency == residency {
			n++
		}
	}
	return n
}

func decision(action Action, rule Rule, id ID, residency Residency) Decision {
	return Decision{action, rule, Instance{ID: id, Residency: residency}}
}

// The window's two bounds, to the second (D23).
func TestLazyWindow(t *testing.T) {
	r := start(t, Policy{Min: 1})
	r.want("the minimum", r.load(5, 40), decision(Create, Bounds, 1, Hot))
	r.want("19 s of burst", r.load(25, 19))
	r.want("quiet again", r.load(5, 40))
	r.want("20 s of burst", r.load(25, 19))
	out := r.load(25, 1)
	if len(out) != 2 || out[0].Action != Create || out[0].Rule != ScaleOut {
		t.Fatalf("after 20 s: %v, want two more instances for 25 requests/s", out)
	}
	r.want("served", r.load(25, 60))
	r.load(25, 40)
	r.want("30 s of less", r.load(12, 30))
	r.want("31 s of less: the youngest goes", r.load(12, 1), decision(Demote, ScaleIn, 3, Shared))
	r.want("the n-1 others are needed", r.load(12, 29))
}

// An instance that is not hot any more is the first to come back, without delay, and is what the window counts on.
func TestDemotionIsGradual(t *testing.T) {
	r := start(t, Policy{Min: 1})
	r.load(5, 1)
	r.load(25, 20)
	if r.count(Hot) != 3 {
		t.Fatalf("%d hot", r.count(Hot))
	}
	if in := r.load(1, 31); len(in) != 2 || r.count(Hot) != 1 || r.count(Shared) != 1 || r.count(Warm) != 1 {
		t.Fatalf("%v: %+v, want one of each", in, r.state.Instances)
	}
	r.want("a burst wakes what it needs", r.load(15, 1), decision(Promote, Overflow, 2, Hot))
	r.want("and no more", r.load(15, 100))
	r.want("the window counts the warm one", r.load(29, 1), decision(Promote, Overflow, 3, Hot))
	if out := r.load(31, 20); len(out) != 1 || out[0].Action != Create || out[0].Instance.ID != 4 {
		t.Errorf("above all three for 20 s: %v", out)
	}
}

// A promotion begins the window anew, like every other change of the throughput (D23): the quiet seconds before a burst do not count
// towards the next demotion.
func TestPromotionClearsTheWindow(t *testing.T) {
	r := start(t, Policy{Min: 1})
	r.load(5, 1)
	r.load(25, 20)
	r.load(1, 31)
	r.want("quiet", r.load(1, 20))
	r.want("a burst", r.load(15, 1), decision(Promote, Overflow, 2, Hot))
	r.want("30 s after it", r.load(5, 30))
	r.want("31 s after it", r.load(5, 1), decision(Demote, ScaleIn, 2, Shared))
}

func TestTimers(t *testing.T) {
	r := start(t, Policy{})
	r.want("no load, no instance", r.load(0, 100))
	r.want("the first request", r.load(1, 1), decision(Create, FromZero, 1, Hot))
	r.want("idle", r.load(0, 30))
	r.want("31 s", r.load(0, 1), decision(Demote, ScaleIn, 1, Shared))
	r.want("shared", r.load(0, 29))
	r.want("30 s", r.load(0, 1), decision(Demote, Unneeded, 1, Warm))
	r.want("warm", r.load(0, 599))
	r.want("10 min", r.load(0, 1), decision(Delete, Unneeded, 1, Cold))
	r.want("again", r.load(1, 1), decision(Create, FromZero, 2, Hot))
}

// Least efficient first: the residual instance goes, the efficient ones stay.
func TestScaleInTakesTheLeastEfficient(t *testing.T) {
	small := Configuration{Share: share.Share{SMRequest: 120, QuotaRequest: 200}, Throughput: 4}
	s := newScaler(t, Policy{Min: 1}, size, small)
	state := State{LastID: 3, Instances: []Instance{{ID: 1, Configuration: small}, {ID: 2, Configuration: size}, {ID: 3, Configuration: size}}}
	for now := time.Second; ; now += time.Second {
		decisions, next, err := s.Decide(now, Load{Rate: 15}, state)
		if err != nil || now > 31*time.Second {
			t.Fatalf("at %v: %v", now, err)
		}
		if state = next; len(decisions) > 0 {
			if len(decisions) != 1 || decisions[0].Instance.ID != 1 {
				t.Errorf("%v, want instance 1 to go", decisions)
			}
			return
		}
	}
}

// A scaler that stood still does not act on what it saw before, and one asked often does not count a second twice.
func TestSamplesKeepTime(t *testing.T) {
	r := start(t, Policy{Min: 1})
	r.load(5, 1)
	r.load(25, 19)
	r.now += time.Minute
	r.want("after a pause", r.load(25, 1))
	for range 100 {
		decisions, state, err := r.scaler.Decide(r.now+time.Millisecond, Load{Rate: 25}, r.state)
		if err != nil || len(decisions) > 0 {
			t.Fatalf("within one second: %v, %v", decisions, err)
		}
		r.state = state
	}
}

func TestBounds(t *testing.T) {
	r := start(t, Policy{Min: 2, Max: 3})
	r.load(1000, 100)
	if r.count(Hot) != 3 {
		t.Errorf("%d hot, want at most 3", r.count(Hot))
	}
	r.load(0, 1000)
	if r.count(Hot) != 2 || len(r.state.Instances) != 2 {
		t.Errorf("%+v, want the two of the minimum", r.state.Instances)
	}
}

// However low the load is expected, what goes is not needed by the samples that did not vote for it.
func TestScaleInHeedsTheSamples(t *testing.T) {
	r := start(t, Policy{Min: 1, Predict: func([]Rate) Rate { return 0 }})
	r.load(25, 21)
	r.want("31 s at 12 of 30", r.load(12, 31), decision(Demote, ScaleIn, 3, Shared))
}

// When an instance fails, the samples that it served may exceed what is left, but not with the idle instance.
func TestIdleInstanceIsHeadroom(t *testing.T) {
	for _, idle := range []Residency{Shared, Warm} {
		r := start(t, Policy{})
		for id := range ID(3) {
			r.state.Instances = append(r.state.Instances, Instance{ID: id + 1, Configuration: size})
		}
		r.state.LastID, r.state.Instances[2].Residency = 3, idle
		r.load(15, 20)
		r.state.Instances = r.state.Instances[1:]
		if got := r.load(5, 1); len(got) != 0 {
			t.Errorf("%v: %v, want none", idle, got)
		}
		r.state.Instances = r.state.Instances[:1]
		if got := r.load(5, 1); len(got) != 1 || got[0].Rule != ScaleOut {
			t.Errorf("without it: %v, want to scale out", got)
		}
	}
}

// TestIsShort: what there is is short of what would be created, where the maximum alone keeps it from that.
func TestIsShort(t *testing.T) {
	for name, test := range map[string]struct {
		max, seconds int
		load         Rate
		want         bool
	}{
		"above the maximum":   {2, 120, 25, true},
		"not for long enough": {2, 10, 25, false},
		"what they do":        {2, 120, 20, false},
		"below the maximum":   {9, 120, 25, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := start(t, Policy{Max: test.max})
			r.load(15, 120)
			r.load(test.load, test.seconds)
			if got := r.scaler.IsShort(r.state); got != test.want {
				t.Errorf("%t with %d instances", got, len(r.state.Instances))
			}
		})
	}
}
