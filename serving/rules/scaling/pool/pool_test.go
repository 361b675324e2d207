package pool

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/gshare-dev/gshare/serving/rules/scaling"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// configurationOf returns a configuration on a tenth of the SMs that serves ten requests a second times the efficiency.
func configurationOf(efficiency scaling.Rate) scaling.Configuration {
	whole := share.Share{SMRequest: 100, SMLimit: 100, QuotaRequest: share.Whole, QuotaLimit: share.Whole}
	return scaling.Configuration{Share: whole, Batch: 1, Throughput: 10 * efficiency}
}

var (
	good = configurationOf(2)
	poor = configurationOf(1)
)

func wants(c scaling.Configuration, ids ...scaling.ID) []scaling.Instance {
	var want []scaling.Instance
	for _, id := range ids {
		want = append(want, scaling.Instance{ID: id, Configuration: c})
	}
	return want
}

func instance(id scaling.ID, phase Phase, r scaling.Residency, used time.Duration) Instance {
	return Instance{ID: id, Configuration: good, Phase: phase, Residency: r, Since: used, LastUsed: used}
}

func hot(id scaling.ID) Instance    { return instance(id, Ready, scaling.Hot, 0) }
func shared(id scaling.ID) Instance { return instance(id, Ready, scaling.Shared, 0) }
func warm(id scaling.ID) Instance   { return instance(id, Ready, scaling.Warm, 0) }

func with(i Instance, c scaling.Configuration) Instance {
	i.Configuration = c
	return i
}

func TestNext(t *testing.T) {
	retain := Policy{Retain: true}
	for _, c := range []struct {
		name   string
		policy Policy
		want   []scaling.Instance
		have   []Instance
		steps  []string
	}{
		{"nothing", Policy{}, nil, nil, nil},
		{"all are there", Policy{}, wants(good, 1, 2), []Instance{hot(2), hot(1)}, nil},
		{"one that starts counts", Policy{}, wants(good, 1), []Instance{instance(1, Starting, scaling.Hot, 0)}, nil},
		{"one that has failed counts", Policy{}, wants(good, 1), []Instance{instance(1, Failed, scaling.Hot, 0)}, nil},
		{"one that is drained does not", Policy{}, wants(good, 2), []Instance{instance(1, Draining, scaling.Hot, 0)}, []string{"start 2 Hot"}},
		{"even with its ID", Policy{}, wants(good, 1), []Instance{instance(1, Draining, scaling.Hot, 0)}, []string{"start 1 Hot"}},
		{"a new one is Hot", Policy{}, wants(good, 1, 2), nil, []string{"start 1 Hot", "start 2 Hot"}},
		{"the first is Shared where one is kept", retain, wants(good, 1, 2), nil, []string{"start 1 Shared", "start 2 Hot"}},
		{"a loaded one is adopted before a warm one", retain, wants(good, 9), []Instance{warm(1), shared(2)}, []string{"adopt 2 for 9"}},
		{"also one of another configuration", retain, wants(good, 9), []Instance{with(shared(2), poor)}, []string{"adopt 2 for 9"}},
		{"the latest of the warm ones", retain, wants(good, 9, 10),
			[]Instance{instance(3, Ready, scaling.Warm, 5), instance(1, Ready, scaling.Warm, 7), instance(2, Ready, scaling.Warm, 6)},
			[]string{"adopt 1 for 9", "promote 1 Shared", "adopt 2 for 10", "promote 2 Hot"}},
		{"none that has failed", retain, wants(good, 9), []Instance{instance(1, Failed, scaling.Hot, 0)}, []string{"start 9 Shared", "stop 1"}},
		{"surplus ones are stopped", Policy{}, wants(good, 1), []Instance{hot(1), hot(2), hot(3)}, []string{"stop 3", "stop 2"}},
		{"or one is Shared, and others Warm", retain, nil, []Instance{hot(1), hot(2)}, []string{"demote 2 Shared", "demote 1 Warm"}},
		{"a Shared one stays", retain, nil, []Instance{hot(1), shared(2)}, []string{"demote 1 Warm"}},
		{"the least efficient first", Policy{}, nil, []Instance{hot(2), with(hot(1), poor)}, []string{"stop 1", "stop 2"}},
		{"Shared before Hot", Policy{}, nil, []Instance{with(hot(1), poor), shared(2)}, []string{"stop 2", "stop 1"}},
		{"idle longest first", Policy{}, nil, []Instance{instance(2, Ready, scaling.Hot, 9), instance(1, Ready, scaling.Hot, 8)},
			[]string{"stop 1", "stop 2"}},
		{"a failed one leaves instead", Policy{}, wants(good, 1), []Instance{instance(1, Failed, scaling.Hot, 0), hot(2)},
			[]string{"adopt 2 for 1", "stop 1"}},
		{"one that starts leaves instead", Policy{}, wants(good, 1), []Instance{instance(1, Starting, scaling.Hot, 0), hot(2)},
			[]string{"adopt 2 for 1", "stop 1"}},
		{"a Shared one leaves instead", Policy{}, wants(good, 1), []Instance{shared(1), hot(2)}, []string{"adopt 2 for 1", "stop 1"}},
		{"and stays Shared where one is kept", retain, wants(good, 1), []Instance{shared(1), hot(2)}, []string{"adopt 2 for 1"}},
		{"not if its configuration differs", Policy{}, wants(poor, 1), []Instance{with(shared(1), poor), hot(2)}, []string{"stop 2"}},
		{"a kept one is not exchanged", retain, wants(good, 1), []Instance{instance(1, Failed, scaling.Hot, 0), shared(2)}, nil},
		{"the warm minimum starts", Policy{Warm: 2, WarmAs: poor}, wants(good, 1), nil, []string{"start 1 Hot", "start 0 Warm"}},
		{"and replaces a failed one", Policy{Warm: 1, WarmAs: poor}, wants(good, 1), []Instance{instance(1, Failed, scaling.Hot, 0)},
			[]string{"start 0 Warm"}},
		{"the last ones become Warm", Policy{Warm: 1, WarmAs: poor}, nil, []Instance{hot(1), hot(2)}, []string{"stop 2", "demote 1 Warm"}},
		{"a Warm one does not suffice for load", Policy{Warm: 1, WarmAs: poor}, wants(good, 5), []Instance{warm(1)},
			[]string{"adopt 1 for 5", "promote 1 Hot"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var steps []string
			for _, s := range settle(t, c.policy, &c.want, &c.have) {
				steps = append(steps, s.text)
			}
			if !slices.Equal(steps, c.steps) {
				t.Errorf("%q, want %q", steps, c.steps)
			}
		})
	}
}

// done is a step with what was there before it.
type done struct {
	Step
	text string
	want []scaling.Instance
	have []Instance
}

// settle carries steps out until there is none, and returns them.
func settle(t *testing.T, p Policy, want *[]scaling.Instance, have *[]Instance) []done {
	t.Helper()
	var steps []done
	for {
		before := done{want: slices.Clone(*want), have: slices.Clone(*have)}
		step, more := p.Next(*want, *have)
		if !reflect.DeepEqual(before.want, slices.Clone(*want)) || !reflect.DeepEqual(before.have, slices.Clone(*have)) {
			t.Fatal("Next changed what it was given")
		}
		if !more {
			return steps
		}
		before.Step, before.text = step, carryOut(step, want, have)
		steps = append(steps, before)
		if len(steps) > 1000 {
			t.Fatalf("does not settle: %s, then %s", steps[999].text, before.text)
		}
	}
}

// carryOut does to the instances what a platform would, and returns the step as text.
func carryOut(s Step, want *[]scaling.Instance, have *[]Instance) string {
	if s.Do == Start {
		i := Instance{ID: s.For, Configuration: s.Configuration, Phase: Starting, Residency: s.To}
		if s.For == 0 { // of the warm minimum
			i.ID = scaling.ID(10_000 + len(*have))
		}
		*have = append(*have, i)
		return fmt.Sprintf("start %d %v", s.For, s.To)
	}
	i := &(*have)[s.At]
	switch s.Do {
	case Adopt:
		*want = scaling.State{Instances: *want}.Replace(s.For, i.ID, s.Configuration).Instances
		return fmt.Sprintf("adopt %d for %d", i.ID, s.For)
	case Stop:
		i.Phase = Draining
		return fmt.Sprintf("stop %d", i.ID)
	}
	i.Residency = s.To
	return fmt.Sprintf("%s %d %v", s.Do, i.ID, s.To)
}

// Whatever is found: the steps end with all wanted instances and no more than are kept; nothing is started while there is something to
// adopt; and no Hot instance is given up for a Shared one of its configuration, nor a working one for one that has failed.
func TestNextProperties(t *testing.T) {
	random := rand.New(rand.NewPCG(4, 0))
	verbs := map[Verb]int{}
	for range 20_000 {
		p := Policy{Retain: random.IntN(2) == 0, Warm: random.IntN(3), WarmAs: poor}
		want, have := randomPool(random)
		initial := len(want)
		before := size(have)
		for _, s := range settle(t, p, &want, &have) {
			verbs[s.Do]++
			checkStep(t, s)
		}
		loaded, failed := 0, 0
		for _, w := range want {
			if !slices.ContainsFunc(have, func(i Instance) bool { return i.ID == w.ID && i.loaded() }) {
				t.Fatalf("%d does not serve: %v", w.ID, have)
			}
		}
		for _, i := range have {
			if i.exists() && i.Residency != scaling.Warm {
				loaded++
			}
			if i.Phase == Failed {
				failed++
			}
		}
		most := initial
		if p.Retain {
			most++
		}
		if len(want) != initial || loaded > most || failed > initial || size(have) < p.Warm {
			t.Fatalf("want %d, keep at most %d and at least %d, have %v", initial, most, p.Warm, have)
		}
		if limit := max(before, initial) + max(p.Warm, 1) + failed; size(have) > limit {
			t.Fatalf("%d instances, want at most %d", size(have), limit)
		}
	}
	for _, v := range []Verb{Start, Adopt, Promote, Demote, Stop} {
		if verbs[v] < 100 {
			t.Errorf("only %d steps are %s", verbs[v], v)
		}
	}
}

func checkStep(t *testing.T, s done) {
	t.Helper()
	if s.Do == Start {
		for _, i := range s.have {
			if s.For != 0 && i.exists() && i.Phase != Failed && !contains(s.want, i.ID) {
				t.Fatalf("%s while %v could be adopted", s.text, i)
			}
		}
		return
	}
	victim := s.have[s.At]
	if s.Do == Adopt || s.Do == Promote {
		return
	}
	if contains(s.want, victim.ID) {
		t.Fatalf("%s, which is wanted", s.text)
	}
	for _, i := range s.have {
		if contains(s.want, i.ID) && i.loaded() && i.Configuration == victim.Configuration && compareVictims(&i, &victim) < 0 {
			t.Fatalf("%s, %v instead of %v", s.text, victim, i)
		}
	}
}

func randomPool(random *rand.Rand) (want []scaling.Instance, have []Instance) {
	sharedOne := false
	for id := range scaling.ID(random.IntN(8)) {
		i := Instance{
			ID: id + 1, Configuration: []scaling.Configuration{good, poor}[random.IntN(2)],
			Phase:     []Phase{Starting, Ready, Ready, Ready, Failed, Draining}[random.IntN(6)],
			Residency: scaling.Residency(random.IntN(3)), LastUsed: time.Duration(random.IntN(4)),
		}
		if i.Residency == scaling.Shared && sharedOne || i.Phase == Failed && i.Residency == scaling.Warm {
			i.Residency = scaling.Hot
		}
		sharedOne = sharedOne || i.Residency == scaling.Shared
		have = append(have, i)
		if i.Phase != Draining && random.IntN(2) == 0 {
			want = append(want, scaling.Instance{ID: i.ID, Configuration: i.Configuration})
		}
	}
	for id := range scaling.ID(random.IntN(4)) {
		want = append(want, wants(good, 100+id)...)
	}
	random.Shuffle(len(have), func(a, b int) { have[a], have[b] = have[b], have[a] })
	return want, have
}

func TestReview(t *testing.T) {
	const now = time.Hour
	p := Policy{Retain: true, Warm: 1, Residency: Thresholds{}}
	used := func(i Instance, utilisation share.PerMille) Instance { i.Utilisation = utilisation; return i }
	recent := func(i Instance) Instance { i.LastUsed = now; return i }
	busy := func(i Instance) Instance { i.Busy = true; return i }
	for _, c := range []struct {
		name string
		want []scaling.Instance
		have []Instance
		next scaling.Residency // of the first
	}{
		{"a used one is Hot", wants(good, 1), []Instance{used(recent(shared(1)), 900)}, scaling.Hot},
		{"not if it is surplus", nil, []Instance{used(recent(shared(1)), 900)}, scaling.Shared},
		{"an idle one is Shared", wants(good, 1), []Instance{hot(1)}, scaling.Shared},
		{"if none is", wants(good, 1, 2), []Instance{hot(1), shared(2)}, scaling.Hot},
		{"one that is drained is none", wants(good, 1), []Instance{hot(1), instance(2, Draining, scaling.Shared, 0)}, scaling.Shared},
		{"one that starts stays", wants(good, 1), []Instance{instance(1, Starting, scaling.Hot, 0)}, scaling.Hot},
		{"a surplus one is stopped", nil, []Instance{shared(1), warm(2)}, scaling.Cold},
		{"not if it is counted", wants(good, 1), []Instance{shared(1), warm(2)}, scaling.Shared},
		{"nor if it is busy", nil, []Instance{busy(shared(1)), warm(2)}, scaling.Shared},
		{"nor if it was used lately", nil, []Instance{recent(shared(1)), warm(2)}, scaling.Shared},
		{"a warm one is stopped", nil, []Instance{warm(1), warm(2)}, scaling.Cold},
		{"not the last of the warm minimum", nil, []Instance{warm(1)}, scaling.Warm},
	} {
		t.Run(c.name, func(t *testing.T) {
			if next := p.Review(now, c.want, c.have, 0); next != c.next {
				t.Errorf("%v, want %v", next, c.next)
			}
		})
	}
}

func TestLeastRecentlyUsed(t *testing.T) {
	busy := instance(4, Ready, scaling.Shared, 0)
	busy.Busy = true
	never := []Instance{hot(1), warm(2), instance(3, Starting, scaling.Shared, 0), busy, instance(5, Draining, scaling.Shared, 0)}
	if at, ok := LeastRecentlyUsed(never); ok {
		t.Errorf("evicts %v", never[at])
	}
	all := append(never, instance(6, Ready, scaling.Shared, 9), instance(7, Ready, scaling.Shared, 8), instance(8, Ready, scaling.Shared, 8))
	if at, ok := LeastRecentlyUsed(all); !ok || all[at].ID != 7 {
		t.Errorf("evicts %v", all[at])
	}
}
