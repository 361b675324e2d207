package scaling

import (
	"slices"
	"time"
)

// step is one decision under way: each rule sees the state as those before it left it.
type step struct {
	policy    *Policy
	choices   []Configuration
	now       time.Duration
	load      Rate
	state     *State
	decisions []Decision
}

// promote brings instances back as soon as the load exceeds what is hot. That is fast, so no window delays it: idle
// instances are head-room as the shares of running ones are (DI-84).
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

// reachMinimum holds the least number of hot instances, at the start above all.
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

// sample takes the load into the window, which the rules before it may have begun anew.
func (s *step) sample() error {
	s.state.Samples = window(s.state.Samples).add(Sample{s.now, s.load}, s.policy.Window, s.policy.Period)
	return nil
}

// scaleOut creates instances once enough samples exceeded all that is there (DI-81), as many as serve the load that those
// samples reached and the one expected (D24). Where there is none, nothing can bridge the wait: that begins at once.
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

// scaleIn demotes hot instances once enough samples were below what one less serves (DI-82): Alg. 1 says which, for the
// load that the remaining samples reach and the one expected. The most efficient of them is Shared, of which a function
// has one at most (FF-45); the others, and the one before it, are Warm.
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

func (s *step) displace() {
	for at := range s.state.Instances {
		if s.state.Instances[at].Residency == Shared {
			s.move(at, Warm, Demote, Displaced)
		}
	}
}

// age demotes what was idle for long, to the end (FF-43).
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

// record notes a decision. What serves has changed, so the window begins anew (D23); ageing changes head-room only.
func (s *step) record(at int, action Action, rule Rule) {
	s.decisions = append(s.decisions, Decision{Action: action, Rule: rule, Instance: s.state.Instances[at]})
	if rule != Unneeded {
		s.state.Samples = nil
	}
}
