package scaling

import (
	"math"
	"slices"
	"time"
)

// Load is what a function had to do in the last period, and how that went. With nothing but a Rate, the autoscaler looks at the rate alone.
type Load struct {
	Rate     Rate // of the requests that arrived
	Busy     int  // requests at replicas now
	Waiting  int  // requests that wait for a replica now
	Places   int  // requests that one replica gets at once; 0 if unknown
	Ready    int  // replicas that get requests now
	Starting int  // replicas that are going to get requests soon; none that have failed
	Finished int  // requests that were answered in the period
	Refused  int  // requests that were refused in the period: with more replicas they would not have been. Late answers may be due to slow requests
}

// work is one period of a function, as State remembers it.
type work struct {
	at   time.Duration
	load Load
}

// The spans over which the work of a function counts.
const (
	shortSpan = 10 * time.Second // in which misses count as going on
	longSpan  = time.Minute      // in which the error budget has to be spent, too
	growth    = 5                // periods: about as long as a replica takes to start
	sustained = 3                // periods after which it is known how long requests take, and a new replica has answered what waited for it
)

// errorBudget is the part of its requests that a function may miss, as its objective is for 99 % of them.
const errorBudget = 0.01

// remember adds the load of the last period to the state and forgets what is older than longSpan.
func (s *decider) remember() error {
	recent := slices.DeleteFunc(slices.Clone(s.state.recent), func(w work) bool { return s.now-w.at >= longSpan || w.at == s.now })
	s.state.recent = append(recent, work{s.now, s.load})
	return nil
}

// within returns what happened in the last span.
func (s *decider) within(span time.Duration) []work {
	all := s.state.recent
	at := slices.IndexFunc(all, func(w work) bool { return s.now-w.at < span })
	return all[max(at, 0):]
}

// instancesForWork returns how many instances long requests need, at replicas and in the queue. By Little's law, the mean number of those at replicas over
// the rate of answers is the time that one takes. If that is more than a period, each holds a place until after the next decision, and as many more will
// come until a new instance is ready as have come in the same time before. For shorter ones it returns 0: what counts is how many come in a second.
func (s *decider) instancesForWork() int {
	if s.load.Places <= 0 {
		return 0
	}
	var present []int
	busy, finished := 0, 0
	for _, w := range s.within(shortSpan) {
		if w.load.Ready == 0 { // requests wait for a start, which says nothing about how long they take
			continue
		}
		present = append(present, w.load.Busy+w.load.Waiting)
		busy, finished = busy+w.load.Busy, finished+w.load.Finished
	}
	if len(present) < sustained || busy <= finished+1 { // one that was seen once may be short
		return 0
	}
	now := present[len(present)-1]
	coming := max(0, now-present[max(0, len(present)-1-growth)])
	return (now + coming + s.load.Places - 1) / s.load.Places
}

// followWork makes instances Hot for the requests that hold places or wait for one. Those in reserve may hold some, and can be given up at any time.
func (s *decider) followWork() error { return s.reach(s.instancesForWork(), Work) }

// spendBudget promotes or creates instances while requests are refused, whatever their rate says: if they are more than the objective allows over both spans, and
// are missed again since the last instance became ready: as many as would have answered those, or
// all of the busiest period. It waits for those that
// are starting.
func (s *decider) spendBudget() error {
	if !s.isSpent(shortSpan) || !s.isSpent(longSpan) {
		return nil
	}
	peak, most, again, last := Rate(0), 0, false, 0
	ready := 0 // periods that began with as many replicas as there are now
	for _, w := range s.within(shortSpan) {
		peak = max(peak, w.load.Rate)
		if ready >= sustained && w.load.Refused > 0 { // earlier, it is the queue that has grown while they started
			again = again || w.at < s.now
			most = max(most, last+w.load.Refused) // a burst may begin in the middle of a period
		}
		if last, ready = w.load.Refused, ready+1; w.load.Ready < s.load.Ready || w.load.Ready == 0 {
			ready = 0
		}
	}
	if s.load.Refused == 0 || !again || s.load.Starting > 0 || len(s.decisions) > 0 {
		return nil
	}
	efficient, err := MostEfficient(s.choices)
	if err != nil {
		return err
	}
	instances := func(requests float64) int {
		return int(math.Ceil(requests / s.policy.Period.Seconds() / float64(efficient.Throughput)))
	}
	return s.reach(max(s.state.serving()+instances(float64(most)), instances(float64(peak))), Refused)
}

func (s *decider) isSpent(span time.Duration) bool {
	refused, arrived := 0, 0.0
	for _, w := range s.within(span) {
		refused += w.load.Refused
		arrived += float64(w.load.Rate) * s.policy.Period.Seconds()
	}
	return float64(refused) > errorBudget*max(arrived, float64(refused))
}

// reach promotes instances in reserve or parked, and then creates some, until n are Hot, or as many as there may be.
func (s *decider) reach(n int, rule Rule) error {
	missing := n - len(s.hot())
	if missing <= 0 {
		return nil
	}
	spare := s.state.spareInstances()
	spare = spare[:min(missing, len(spare))]
	for _, at := range spare {
		s.promote(at, rule)
	}
	missing = min(missing-len(spare), s.policy.Max-len(s.state.Instances))
	efficient, err := MostEfficient(s.choices)
	s.create(slices.Repeat([]Configuration{efficient}, max(0, missing)), rule)
	return err
}

// reserve is what a function has learned of how long its instances are worth keeping in reserve.
type reserve struct {
	keeps   time.Duration // longer than Policy.SharedFor, or 0
	entered time.Duration // when the instance that left the reserve last had come into it, if none has been created since; else 0
	learned time.Duration // when keeps was last of use
}

// Bounds of what a function learns.
const (
	longest = 8         // times Policy.SharedFor
	forget  = time.Hour // after which keeps is forgotten if it is of no use
)

// end notes that an instance leaves the reserve, into which it came at a given time.
func (r *reserve) end(entered, now time.Duration) {
	if r.entered = entered; now-r.learned >= forget {
		r.keeps = 0
	}
}

// missed notes that an instance is created. If one would still be in reserve had it been kept longer, within bounds, the next ones are, and a quarter
// longer in case the next gap in the load is not quite the same.
func (r *reserve) missed(now, sharedFor time.Duration) {
	if gap := now - r.entered; r.entered > 0 && gap <= longest*sharedFor {
		r.keeps, r.learned = max(r.keeps, min(gap+gap/4, longest*sharedFor)), now
	}
	r.entered = 0
}

// used notes that an instance leaves the reserve because it is needed. That it was kept for longer than usual was worth it then.
func (r *reserve) used(entered, now, sharedFor time.Duration) {
	if now-entered > sharedFor {
		r.learned = now
	}
}

// sharedFor returns how long an instance stays in reserve.
func (s *decider) sharedFor() time.Duration {
	if !s.policy.Reserve {
		return s.policy.SharedFor
	}
	return max(s.policy.SharedFor, s.state.reserve.keeps)
}

// Plus returns the sum of the loads of two functions that share replicas: those of l.
func (l Load) Plus(other Load) Load {
	l.Rate += other.Rate
	l.Busy, l.Waiting = l.Busy+other.Busy, l.Waiting+other.Waiting
	l.Finished, l.Refused = l.Finished+other.Finished, l.Refused+other.Refused
	return l
}

// WhyNoMore returns why Decide creates no instance although requests are refused, or an empty string if that is not so. state is the one that Decide has
// returned.
func (s *Scaler) WhyNoMore(now time.Duration, state State) string {
	if len(state.recent) == 0 {
		return ""
	}
	step := decider{policy: &s.policy, choices: s.choices, now: now, load: state.recent[len(state.recent)-1].load, state: &state}
	switch {
	case step.load.Refused == 0:
		return ""
	case state.serving() >= s.policy.Max:
		return "it has as many replicas as it may have (maxReplicas)"
	case step.load.Starting > 0:
		return "replicas are starting"
	case !step.isSpent(shortSpan) || !step.isSpent(longSpan):
		return "its objective allows as many refusals"
	}
	return "requests were refused once only"
}
