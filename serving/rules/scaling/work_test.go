package scaling

import (
	"slices"
	"testing"
	"time"
)

// served is a function whose requests each hold a place for a given time, second by second.
type served struct {
	starts  int          // seconds until a replica is ready
	takes   int          // seconds of a request
	waits   int          // seconds after which a waiting request is refused
	refused int          // so far
	began   map[ID]int   // when replicas were created
	ends    map[ID][]int // of the requests at replicas
	queue   []int        // when those that wait came
	broken  int          // requests whose replica was removed
	most    int          // replicas at a time
	actions map[Rule]int // decisions
	scaler  *Scaler
	state   State
	places  int
}

func (s *served) second(t *testing.T, now, come int) {
	t.Helper()
	finished, refused, busy, ready := 0, 0, 0, 0
	for range come {
		s.queue = append(s.queue, now)
	}
	for id, ends := range s.ends {
		var left []int
		for _, at := range ends {
			if at > now {
				left = append(left, at)
			} else {
				finished++
			}
		}
		s.ends[id] = left
	}
	for _, i := range s.state.Instances {
		if s.began[i.ID]+s.starts > now {
			continue
		}
		ready++
		for len(s.queue) > 0 && len(s.ends[i.ID]) < s.places {
			s.queue = s.queue[1:]
			s.ends[i.ID] = append(s.ends[i.ID], now+s.takes)
		}
		busy += len(s.ends[i.ID])
	}
	for len(s.queue) > 0 && ready > 0 && now-s.queue[0] >= s.waits {
		s.queue, refused = s.queue[1:], refused+1
	}
	s.refused += refused
	decisions, state, err := s.scaler.Decide(time.Duration(now)*time.Second, Load{
		Rate: max(Rate(come), 0.0001), Busy: busy, Waiting: len(s.queue), Places: s.places, Ready: ready, Starting: s.state.serving() - ready, Finished: finished, Refused: refused,
	}, s.state)
	if err != nil {
		t.Fatal(err)
	}
	s.state = state
	for _, d := range decisions {
		s.actions[d.Rule]++
		if d.Action == Create {
			s.began[d.Instance.ID] = now
		}
		if d.Instance.Residency >= Warm { // as a fleet without parking
			s.broken += len(s.ends[d.Instance.ID])
			s.state = s.state.Without(d.Instance.ID)
			delete(s.ends, d.Instance.ID)
		}
	}
	s.most = max(s.most, len(s.state.Instances))
}

func long(t *testing.T) *served {
	out, in := 10, 15
	c := size
	c.Throughput = 1
	return &served{
		starts: 2, takes: 40, waits: 5, places: 4, began: map[ID]int{}, ends: map[ID][]int{}, actions: map[Rule]int{},
		scaler: newScaler(t, Policy{Window: 20 * time.Second, Out: out, In: in, Min: 1, Max: 3, Reserve: true, Predict: Kalman}, c),
	}
}

// TestLongRequests: streams of 40 s, one every 2 s, need more than the four places of one replica although half a request a second is half of what a
// replica is said to do. Twelve places hold twelve of the twenty; two more come when the first ones have ended.
func TestLongRequests(t *testing.T) {
	s := long(t)
	for now := range 100 {
		come := 0
		if now >= 10 && now < 50 && now%2 == 0 {
			come = 1
		}
		s.second(t, now, come)
	}
	if s.most != 3 || s.refused > 6 || s.broken > 0 || s.actions[Work] == 0 {
		t.Errorf("%d replicas, %d of 20 refused, %d broken, decisions %v; want 3 replicas, at most 6 refused and none broken", s.most, s.refused, s.broken, s.actions)
	}
}

// TestWaiting: requests that come at once and wait for one another get a replica each.
func TestWaiting(t *testing.T) {
	s := long(t)
	s.takes, s.waits, s.places = 15, 60, 1
	for now := range 60 {
		come := 0
		if now == 10 {
			come = 4
		}
		s.second(t, now, come)
	}
	if s.most != 3 || s.actions[Work] == 0 {
		t.Errorf("%d replicas, decisions %v; want 3", s.most, s.actions)
	}
}

// TestSpendBudget: a function that refuses requests gets more replicas whatever its rate is, until it refuses none or may have no more. It is told why. It
// waits for those that start, but not for those that do not.
func TestSpendBudget(t *testing.T) {
	for name, c := range map[string]struct {
		refused, unready, starting int // requests refused in a second; replicas that get no requests, and those of them that start
		want                       int
		why                        string
	}{
		"refusals":          {5, 0, 0, 4, "it has as many replicas as it may have (maxReplicas)"},
		"within the budget": {0, 0, 0, 1, ""},
		"starting":          {5, 1, 1, 1, "replicas are starting"},
		"one has failed":    {5, 1, 0, 4, "it has as many replicas as it may have (maxReplicas)"},
	} {
		t.Run(name, func(t *testing.T) {
			least := 1
			if c.unready > c.starting {
				least = 2
			}
			scaler, state := newScaler(t, Policy{Min: least, Max: 4, Reserve: true}, size), State{}
			for second := range 60 {
				load := Load{Rate: 8, Places: 1, Finished: 8, Refused: c.refused, Ready: max(0, len(state.Instances)-c.unready), Starting: c.starting}
				_, next, err := scaler.Decide(time.Duration(second)*time.Second, load, state)
				if err != nil {
					t.Fatal(err)
				}
				state = next
			}
			why := scaler.WhyNoMore(59*time.Second, state)
			if len(state.Instances) != c.want || why != c.why {
				t.Errorf("%d replicas, reason %q; want %d, %q", len(state.Instances), why, c.want, c.why)
			}
		})
	}
}

// TestSpareForWork: a function whose requests hold all places, or are refused, has the replicas Hot that serve them: it promotes those in reserve, which could
// be given up with their requests, and those that are parked, which have no places, before it creates one.
func TestSpareForWork(t *testing.T) {
	held, refused := Load{Rate: 0.1, Busy: 4, Places: 2, Ready: 1}, Load{Rate: 8, Places: 1, Finished: 8, Refused: 5, Ready: 1}
	for name, c := range map[string]struct {
		spare   []Residency // beside a Hot instance
		load    Load
		seconds int
		max     int
		want    []Residency
	}{
		"long, one in reserve":     {[]Residency{Shared}, held, 5, 4, []Residency{Hot, Hot}},
		"long, one parked":         {[]Residency{Warm}, held, 5, 4, []Residency{Hot, Hot}},
		"long, one parked at most": {[]Residency{Warm}, held, 5, 2, []Residency{Hot, Hot}},
		"refused, one in reserve":  {[]Residency{Shared}, refused, 5, 2, []Residency{Hot, Hot}},
		"refused, one parked":      {[]Residency{Warm}, refused, 5, 2, []Residency{Hot, Hot}},
		"needed for long":          {[]Residency{Shared, Warm}, Load{Rate: 0.1, Busy: 4, Places: 2, Ready: 2}, 60, 4, []Residency{Hot, Hot, Warm}},
		"not needed for long":      {[]Residency{Shared, Warm}, Load{Rate: 0.1, Busy: 2, Places: 2, Ready: 2}, 60, 4, []Residency{Hot, Warm, Warm}},
	} {
		t.Run(name, func(t *testing.T) {
			state := State{LastID: 3, Instances: []Instance{{ID: 1, Configuration: size}}}
			for at, r := range c.spare {
				state.Instances = append(state.Instances, Instance{ID: ID(at + 2), Configuration: size, Residency: r})
			}
			scaler := newScaler(t, Policy{Min: 1, Max: c.max, Reserve: true}, size)
			for second := range c.seconds {
				_, next, err := scaler.Decide(time.Duration(second)*time.Second, c.load, state)
				if err != nil {
					t.Fatal(err)
				}
				state = next
			}
			var got []Residency
			for _, i := range state.Instances {
				got = append(got, i.Residency)
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("%v, want %v", got, c.want)
			}
		})
	}
}

// TestReserveIsLearned: a function whose replica is needed again after it has left the reserve keeps the next ones in it for as long as that gap and a
// quarter, within eight times SharedFor, and forgets that when an hour long it was of no use.
func TestReserveIsLearned(t *testing.T) {
	for name, c := range map[string]struct {
		gap, want int // seconds without load; how long the last replica is kept
	}{
		"no gap that is too long": {8, 10},
		"short gap":               {20, 25},
		"long gap":                {70, 80},
		"gap beyond the bound":    {100, 10},
	} {
		t.Run(name, func(t *testing.T) {
			out, in := 2, 3
			r := start(t, Policy{Window: 4 * time.Second, Out: out, In: in, SharedFor: 10 * time.Second, Reserve: true})
			idle := func(seconds int) (shared int) { // returns in how many of them a replica is in reserve
				for range seconds {
					r.load(0, 1)
					shared += r.count(Shared)
					for _, i := range r.state.Instances { // as a fleet without parking
						if i.Residency == Warm {
							r.state = r.state.Without(i.ID)
						}
					}
				}
				return shared
			}
			r.load(5, 1)
			for r.count(Hot) > 0 {
				r.load(0, 1)
			}
			idle(c.gap - 1) // it is Shared since the last second
			r.load(5, 1)
			if kept := idle(300); kept != c.want {
				t.Errorf("kept for %d s, want %d", kept, c.want)
			}
			idle(3600)
			r.load(5, 1)
			idle(300) // in which it is of no use
			r.load(5, 1)
			if kept := idle(300); kept != 10 {
				t.Errorf("kept for %d s after an hour, want 10", kept)
			}
		})
	}
}
