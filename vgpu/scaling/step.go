package scaling

import (
	"slices"
	"time"
)

// step is one call of Decide. Its rules run in order, each on the state that the ones before it left.
type step struct {
	policy    *Policy
	choices   []Configuration
	now       time.Duration
	load      Rate
	state     *State
	decisions []Decision
}

// promote makes instances Hot as soon as the load exceeds the hot throughput. Promotion is fast, so no window delays it (DI-84).
func (s *step) promote() error {
	gap := s.load - s.hot()
	for _, at := range s.state.spare() {
		if gap <= 0 {
			break
		}
		s.move(at, Hot, Promote, Overflow)
		gap -= s.state.Instances[at].Configuration.Throughput
	}
	return nil
}

// reachMinimum promotes or creates instances up to the policy's minimum of hot ones.
func (s *step) reachMinimum() error {
	missing := s.policy.Min - len(s.state.queue())
	if missing <= 0 {
		return nil
	}
	spare := s.state.spare()
	for _, at := range spare[:min(missing, len(spare))] {
		s.move(at, Hot, Promote, Bounds)
	}
	efficient, err := MostEfficient(s.choices)
	s.create(slices.Repeat([]Configuration{efficient}, max(0, missing-len(spare))), Bounds)
	return err
}

// sample adds the load to the window, which the rules before it may have cleared.
func (s *step) sample() error {
	s.state.Samples = window(s.state.Samples).add(Sample{s.now, s.load}, s.policy.Window, s.policy.Period)
	return nil
}

// scaleOut creates instances once enough samples exceed the throughput of all instances (DI-81), for the larger of the load that
// those samples reached and the predicted one (D24). A function without instances does not wait for the window.
func (s *step) scaleOut() error {
	w, throughput := window(s.state.Samples), s.hot()+sum(s.state.throughputs(s.state.spare()))
	rule, least := ScaleOut, w.reached(s.policy.Out)
	switch {
	case throughput == 0 && s.load > 0:
		rule, least = FromZero, s.load
	case w.above(throughput) < s.policy.Out:
		return nil
	}
	gap := max(least, s.policy.Predict(w.loads())) - throughput
	added, err := ScaleUp(gap, s.choices, s.policy.Residual, s.policy.Max-len(s.state.Instances))
	s.create(added, rule)
	return err
}

// scaleIn demotes hot instances once enough samples are below the throughput of one instance fewer (DI-82). ScaleDown chooses them,
// for the larger of the load that the remaining samples reach and the predicted one. The most efficient of them becomes the
// function's only Shared instance (FF-45); the others, and the Shared instance before it, become Warm.
func (s *step) scaleIn() error {
	w, queue := window(s.state.Samples), s.state.queue()
	may := max(0, len(queue)-s.policy.Min)
	throughputs := s.state.throughputs(queue[:may])
	if may == 0 || w.below(s.hot()-throughputs[0]) <= s.policy.In {
		return nil
	}
	demand := max(w.reached(s.policy.samples()-s.policy.In), s.policy.Predict(w.loads()))
	if err := checkNumber("predicted load", demand); err != nil {
		return err
	}
	leaving := queue[:ScaleDown(demand-s.hot(), throughputs)]
	for i, at := range leaving {
		if i < len(leaving)-1 {
			s.move(at, Warm, Demote, ScaleIn)
			continue
		}
		s.displace()
		s.move(at, Shared, Demote, ScaleIn)
	}
	return nil
}

// displace demotes the Shared instance, if there is one.
func (s *step) displace() {
	for at := range s.state.Instances {
		if s.state.Instances[at].Residency == Shared {
			s.move(at, Warm, Demote, Displaced)
		}
	}
}

// age demotes, and in the end deletes, instances that have been idle for long (FF-43).
func (s *step) age() error {
	for at := range s.state.Instances {
		switch i := &s.state.Instances[at]; {
		case i.Residency == Shared && s.now-i.Since >= s.policy.SharedFor:
			s.move(at, Warm, Demote, Unneeded)
		case i.Residency == Warm && s.now-i.Since >= s.policy.WarmFor:
			s.move(at, Cold, Delete, Unneeded)
		}
	}
	s.state.Instances = slices.DeleteFunc(s.state.Instances, func(i Instance) bool { return i.Residency == Cold })
	return nil
}

// hot returns the throughput of all hot instances.
func (s *step) hot() Rate { return sum(s.state.throughputs(s.state.queue())) }

func (s *step) create(added []Configuration, rule Rule) {
	for _, c := range added {
		s.state.LastID++
		s.state.Instances = append(s.state.Instances, Instance{ID: s.state.LastID, Configuration: c, Since: s.now})
		s.record(len(s.state.Instances)-1, Create, rule)
	}
}

func (s *step) move(at int, to Residency, action Action, rule Rule) {
	i := &s.state.Instances[at]
	i.Residency, i.Since = to, s.now
	s.record(at, action, rule)
}

// record appends a decision and clears the window, since the throughput has changed (D23); ageing does not change it.
func (s *step) record(at int, action Action, rule Rule) {
	s.decisions = append(s.decisions, Decision{Action: action, Rule: rule, Instance: s.state.Instances[at]})
	if rule != Unneeded {
		s.state.Samples = nil
	}
}
