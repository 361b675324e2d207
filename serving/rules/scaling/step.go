package scaling

import (
	"slices"
	"time"
)

// decider is one call of Scaler.Decide. Its rules run in order, each on the state that the rules before it left.
type decider struct {
	policy    *Policy
	choices   []Configuration
	now       time.Duration
	load      Load
	state     *State
	decisions []Decision
	owned     bool  // state.Instances has been cloned from the caller's
	queue     []int // cached result of hot; nil after the instances change
}

// promoteSpare makes Shared and Warm instances Hot as soon as the load exceeds the throughput of the Hot ones. A promotion is fast, so it
// does not wait for a window of samples.
func (s *decider) promoteSpare() error {
	gap := s.load.Rate - s.hotThroughput()
	for _, at := range s.state.spareInstances() {
		if gap <= 0 {
			break
		}
		s.promote(at, Overflow)
		gap -= s.state.Instances[at].Configuration.Throughput
	}
	return nil
}

// reachMinimum promotes or creates instances until the policy's minimum number of Hot instances is reached.
func (s *decider) reachMinimum() error { return s.reach(s.policy.Min, Bounds) }

// addSample adds the present load to the window of samples, which the rules before it may have cleared.
func (s *decider) addSample() error {
	s.state.Samples = window(s.state.Samples).add(Sample{s.now, s.load.Rate}, s.policy.Window, s.policy.Period)
	return nil
}

// scaleOut creates instances once enough samples of the window exceed the throughput of all instances. It adds throughput for the load
// that this many samples reached or for the predicted load, whichever is larger. A function without instances gets one without waiting
// for the window.
func (s *decider) scaleOut() error {
	w, throughput := window(s.state.Samples), s.throughput()
	rule, least := FromZero, s.load.Rate
	if throughput > 0 || s.load.Rate <= 0 {
		if w.countAbove(throughput) < s.policy.Out {
			return nil
		}
		rule, least = ScaleOut, w.loadReached(s.policy.Out)
	}
	gap := max(least, s.policy.Predict(w.loads())) - throughput // D24
	added, err := ScaleUp(gap, s.choices, s.policy.Max-len(s.state.Instances))
	s.create(added, rule)
	return err
}

// scaleIn demotes Hot instances once enough samples of the window are below the throughput of one instance fewer. ScaleDown chooses the
// instances such that the rest serve the load that the other samples reach or the predicted load, whichever is larger. The most efficient
// of the demoted instances becomes the function's only Shared instance; the others, and the previous Shared instance, become Warm. With
// Policy.Reserve they all become or stay Shared.
func (s *decider) scaleIn() error {
	w, queue := window(s.state.Samples), s.hot()
	may := max(0, len(queue)-max(s.policy.Min, s.instancesForWork()))
	if may == 0 || w.countBelow(s.state.throughputOf(queue)-s.state.Instances[queue[0]].Configuration.Throughput) <= s.policy.In {
		return nil
	}
	throughputs := s.state.throughputs(queue[:may])
	demand := max(w.loadReached(s.policy.samplesPerWindow()-s.policy.In), s.policy.Predict(w.loads()))
	if err := checkNumber("predicted load", demand); err != nil {
		return err
	}
	leaving := queue[:ScaleDown(demand-s.hotThroughput(), throughputs)]
	for i, at := range leaving {
		if i < len(leaving)-1 && !s.policy.Reserve {
			s.move(at, Warm, Demote, ScaleIn)
			continue
		}
		if !s.policy.Reserve {
			s.demoteShared()
		}
		s.move(at, Shared, Demote, ScaleIn)
	}
	return nil
}

// demoteShared makes the function's Shared instance Warm, if there is one.
func (s *decider) demoteShared() {
	for at := range s.state.Instances {
		if s.state.Instances[at].Residency == Shared {
			s.move(at, Warm, Demote, Displaced)
		}
	}
}

// ageIdle makes a Shared instance Warm, and deletes a Warm one, once it has not been needed for the time that the policy sets.
func (s *decider) ageIdle() error {
	for at := range s.state.Instances {
		switch i := &s.state.Instances[at]; {
		case i.Residency == Shared && s.now-i.Since >= s.sharedFor():
			if s.policy.Reserve {
				s.state.reserve.end(i.Since, s.now)
			}
			s.move(at, Warm, Demote, Unneeded)
		case i.Residency == Warm && s.now-i.Since >= s.policy.WarmFor:
			s.move(at, Cold, Delete, Unneeded)
		}
	}
	s.state.Instances = slices.DeleteFunc(s.state.Instances, func(i Instance) bool { return i.Residency == Cold })
	return nil
}

// throughput returns the throughput of all instances, in requests per second.
func (s *decider) throughput() Rate {
	return s.hotThroughput() + s.state.throughputOf(s.state.spareInstances())
}

// hotThroughput returns the throughput of all Hot instances, in requests per second.
func (s *decider) hotThroughput() Rate { return s.state.throughputOf(s.hot()) }

// hot returns the Hot instances in the order of State.hotInstances.
func (s *decider) hot() []int {
	if s.queue == nil {
		s.queue = s.state.hotInstances()
	}
	return s.queue
}

func (s *decider) create(added []Configuration, rule Rule) {
	s.own()
	if len(added) > 0 && rule != Bounds {
		s.state.reserve.missed(s.now, s.policy.SharedFor)
	}
	for _, c := range added {
		s.state.LastID++
		s.state.Instances = append(s.state.Instances, Instance{ID: s.state.LastID, Configuration: c, Since: s.now})
		s.record(len(s.state.Instances)-1, Create, rule)
	}
}

func (s *decider) promote(at int, rule Rule) {
	s.state.reserve.used(s.state.Instances[at].Since, s.now, s.policy.SharedFor)
	s.move(at, Hot, Promote, rule)
}

func (s *decider) move(at int, to Residency, action Action, rule Rule) {
	s.own()
	i := &s.state.Instances[at]
	i.Residency, i.Since = to, s.now
	s.record(at, action, rule)
}

// own must be called before every change to the instances. The first call clones them: most decisions change none.
func (s *decider) own() {
	s.queue = nil
	if !s.owned {
		s.owned, s.state.Instances = true, slices.Clone(s.state.Instances)
	}
}

// record appends a decision about the instance at an index. It clears the window of samples, because the throughput has changed, except
// for the rule Unneeded, whose instance served nothing.
func (s *decider) record(at int, action Action, rule Rule) {
	s.decisions = append(s.decisions, Decision{Action: action, Rule: rule, Instance: s.state.Instances[at]})
	if rule != Unneeded { // D23
		s.state.Samples = nil
	}
}

// Sample is the load of a function at one moment.
type Sample struct {
	At   time.Duration
	Load Rate
}

// window is a sliding window of load samples, oldest first.
type window []Sample

// add returns the window with one more sample and without the samples older than length, so that an autoscaler that was stopped for a
// while does not act on old load. A sample that comes less than a period after the last one is ignored.
func (w window) add(s Sample, length, period time.Duration) window {
	if len(w) > 0 && s.At-w[len(w)-1].At < period {
		return w
	}
	young := slices.IndexFunc(w, func(old Sample) bool { return s.At-old.At < length })
	if young < 0 {
		young = len(w)
	}
	kept := w[young:]
	return append(append(make(window, 0, len(kept)+1), kept...), s)
}

// countAbove returns the number of samples above the given throughput.
func (w window) countAbove(throughput Rate) int {
	return w.count(func(load Rate) bool { return load > throughput })
}

// countBelow returns the number of samples below the given throughput. A load of zero counts as below even if the throughput is zero:
// otherwise the last instance would never be removed.
func (w window) countBelow(throughput Rate) int {
	return w.count(func(load Rate) bool { return load < throughput || load == 0 })
}

func (w window) count(votes func(Rate) bool) int {
	n := 0
	for _, s := range w {
		if votes(s.Load) {
			n++
		}
	}
	return n
}

func (w window) loads() []Rate {
	loads := make([]Rate, len(w))
	for i, s := range w {
		loads[i] = s.Load
	}
	return loads
}

// loadReached returns the highest load that at least n of the samples reach, or 0 if there are fewer than n samples.
func (w window) loadReached(n int) Rate {
	loads := w.loads()
	slices.Sort(loads)
	if n > len(loads) {
		return 0
	}
	return loads[len(loads)-n]
}
