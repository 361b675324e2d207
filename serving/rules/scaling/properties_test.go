package scaling

import (
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"
)

// On random loads: never below the minimum nor above the maximum, at most one shared instance, scaling out when and only
// when an independent count of the samples says so, and in only when it does, the input untouched, and the
// same answer twice.
func TestDecideProperties(t *testing.T) {
	random := rand.New(rand.NewPCG(8, 0))
	outs, ins := 0, 0
	for range 50 {
		policy := Policy{Min: random.IntN(3), Max: 3 + random.IntN(20), Out: 1 + random.IntN(30), In: 1 + random.IntN(38)}
		s := newScaler(t, policy, randomChoices(random)...)
		state, now, level := State{}, time.Duration(0), 0.0
		for range 300 {
			if random.IntN(15) == 0 {
				level = random.ExpFloat64() * 50 * float64(random.IntN(2))
			}
			now += time.Second
			load := Rate(level * (0.8 + 0.4*random.Float64()))
			before := State{slices.Clone(state.Samples), slices.Clone(state.Instances), state.LastID, slices.Clone(state.recent), state.reserve}
			decisions, next, err := s.Decide(now, Load{Rate: load}, state)
			again, _, _ := s.Decide(now, Load{Rate: load}, state)
			if err != nil || !reflect.DeepEqual(before, state) || !slices.Equal(decisions, again) {
				t.Fatalf("error %v, or the input changed, or %v is not %v", err, decisions, again)
			}
			out, in := checkVotes(t, policy, state, Sample{now, load}, decisions)
			outs, ins = outs+out, ins+in
			state = next
			checkBounds(t, policy, state)
		}
	}
	if outs == 0 || ins == 0 {
		t.Errorf("scaled out %d times and in %d times: nothing was tested", outs, ins)
	}
}

// checkVotes counts the samples of the last 40 s again, and how often the window decided.
func checkVotes(t *testing.T, policy Policy, state State, now Sample, decisions []Decision) (out, in int) {
	t.Helper()
	by := map[Rule][]Decision{}
	for _, d := range decisions {
		by[d.Rule] = append(by[d.Rule], d)
	}
	out, in = len(by[ScaleOut]), len(by[ScaleIn])
	if len(by[Overflow])+len(by[Bounds])+len(by[FromZero]) > 0 {
		if out+in > 0 && policy.Out > 1 {
			t.Fatalf("%v: a window that begins anew decided", decisions)
		}
		return out, in
	}
	above := votes(state, now, func(load Rate) bool { return load > allOf(state) })
	if may := len(state.Instances) < policy.Max; may && (above >= policy.Out) != (out > 0) || !may && out > 0 {
		t.Fatalf("%d of %d samples above, and %v", above, policy.Out, decisions)
	}
	if in > 0 {
		rest := hotOf(state) - by[ScaleIn][0].Instance.Configuration.Throughput
		below := votes(state, now, func(load Rate) bool { return load < rest*(1+1e-12) || load == 0 })
		if below <= policy.In {
			t.Fatalf("%d samples below, want more than %d before %v", below, policy.In, decisions)
		}
	}
	return out, in
}

func votes(state State, now Sample, vote func(Rate) bool) int {
	n := 0
	for _, s := range append(slices.Clone(state.Samples), now) {
		if now.At-s.At < 40*time.Second && vote(s.Load) {
			n++
		}
	}
	return n
}

func checkBounds(t *testing.T, policy Policy, state State) {
	t.Helper()
	shared := 0
	for _, i := range state.Instances {
		if i.Residency == Shared {
			shared++
		}
	}
	if hot := len(state.hotInstances()); hot < policy.Min || len(state.Instances) > policy.Max || shared > 1 {
		t.Fatalf("%d hot and %d shared of %d, minimum %d, maximum %d", hot, shared, len(state.Instances), policy.Min, policy.Max)
	}
}

func hotOf(s State) Rate { return sum(s.throughputs(s.hotInstances())) }

func allOf(s State) Rate { return hotOf(s) + sum(s.throughputs(s.spareInstances())) }
