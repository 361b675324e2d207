package rckm

import (
	"testing"
	"time"

	"github.com/gshare-dev/gshare/vgpu/share"
	"github.com/gshare-dev/gshare/vgpu/token"
)

// TestUpdatePressure derives the state of a slice from those of its shares (D15, D16).
func TestUpdatePressure(t *testing.T) {
	const now = 9 * time.Second
	type one struct {
		id       token.ID
		priority share.Priority
		state    State
		ratio    share.PerMille
		since    time.Duration
	}
	slo := func(id token.ID, state State, ratio share.PerMille, since time.Duration) one {
		return one{id, share.SLO, state, ratio, since}
	}
	best := one{9, share.BestEffort, Recovery, 0, 0}
	for name, c := range map[string]struct {
		last    Pressure
		members []one
		want    Pressure
	}{
		"nobody":              {Pressure{State: Recovery, Since: 1}, nil, Pressure{State: None, Since: now}},
		"one share":           {Pressure{State: Emergency, Owner: 1, Since: 1, Severity: 2000}, []one{slo(1, Emergency, 2000, 1)}, Pressure{State: None, Since: now}},
		"still one share":     {Pressure{State: None, Since: 1}, []one{slo(1, Emergency, 2000, 1)}, Pressure{State: None, Since: 1}},
		"best effort alone":   {Pressure{State: None, Since: 1}, []one{best, best}, Pressure{State: Recovery, Since: now}},
		"the worst":           {Pressure{State: Recovery, Since: 1}, []one{best, slo(1, Recovery, 0, 2), slo(2, Contention, 1500, 3)}, Pressure{State: Contention, Since: now}},
		"the same as before":  {Pressure{State: Contention, Since: 1}, []one{slo(2, Contention, 1500, 3), best, slo(1, Recovery, 0, 2)}, Pressure{State: Contention, Since: 1}},
		"an emergency":        {Pressure{State: Contention, Since: 1}, []one{best, slo(1, Contention, 0, 2), slo(2, Emergency, 1700, 3)}, Pressure{Emergency, 2, 3, 1700}},
		"still the emergency": {Pressure{Emergency, 2, 3, 1700}, []one{slo(2, Emergency, 1800, 3), best}, Pressure{Emergency, 2, 3, 1800}},
		"the longest cycle":   {Pressure{State: Recovery}, []one{slo(1, Emergency, 1700, 2), slo(2, Emergency, 1900, 3), slo(3, Emergency, 1800, 4)}, Pressure{Emergency, 2, 3, 1900}},
		"equal: the first":    {Pressure{State: Recovery}, []one{slo(1, Emergency, 1700, 2), slo(2, Emergency, 1700, 3)}, Pressure{Emergency, 1, 2, 1700}},
		"it ends":             {Pressure{Emergency, 1, 2, 1700}, []one{slo(1, Recovery, 1700, 5), best}, Pressure{State: Recovery, Since: now}},
		"best effort has no state": {
			Pressure{State: Recovery, Since: 1}, []one{slo(1, Recovery, 0, 2), {9, share.BestEffort, Emergency, 3000, 4}}, Pressure{State: Recovery, Since: 1},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := New(Config{})
			if err != nil {
				t.Fatal(err)
			}
			s.now, s.pressure = now, c.last
			for _, o := range c.members {
				m := newMember(Member{ID: o.id, Priority: o.priority, Request: 100, Limit: 200})
				m.state, m.ratio, m.since = o.state, o.ratio, o.since
				s.members = append(s.members, m)
			}
			if s.updatePressure(); s.pressure != c.want {
				t.Errorf("%+v, want %+v", s.pressure, c.want)
			}
		})
	}
}

// TestMayStop: best effort is stopped for an SLO share, and any share that got more than its request for any other.
func TestMayStop(t *testing.T) {
	for _, c := range []struct {
		own, neighbour share.Priority
		owed           deviceTime
		want           bool
	}{
		{share.BestEffort, share.SLO, 0, true},
		{share.BestEffort, share.SLO, 5, true},
		{share.BestEffort, share.BestEffort, 0, false},
		{share.BestEffort, share.BestEffort, -1, true},
		{share.SLO, share.SLO, 0, false},
		{share.SLO, share.SLO, -1, true},
		{share.SLO, share.BestEffort, 0, false},
		{share.SLO, share.BestEffort, -1, true},
	} {
		m := &member{Member: Member{Priority: c.own, Request: 100}, time: timeAccount{owed: c.owed}}
		if got := mayStop(m, &member{Member: Member{Priority: c.neighbour, Request: 100}}); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

// TestReportedTimes: times that a hook reports count only within the past, and the first launch is not after the last.
func TestReportedTimes(t *testing.T) {
	for _, c := range []struct{ first, last, wantFirst, wantLast time.Duration }{
		{3, 7, 3, 7}, {3, 10, 3, 10}, {3, 20, 3, 10}, {-5, -1, 0, 0}, {-5, 4, 0, 4}, {8, 4, 4, 4}, {12, 20, 10, 10},
	} {
		m := newMember(Member{Request: 100, Limit: 200})
		m.addLaunches(10, Launches{Blocks: 1, First: c.first, Last: c.last})
		if m.tick.First != c.wantFirst || m.tick.Last != c.wantLast {
			t.Errorf("%v to %v counts as %v to %v, want %v to %v", c.first, c.last, m.tick.First, m.tick.Last, c.wantFirst, c.wantLast)
		}
	}
}

// TestSilence: a share without launches is silent, unless it had no tokens to launch with.
func TestSilence(t *testing.T) {
	for balance, want := range map[int64]int{-1: 0, 0: 0, 1: 5, 2: 5} {
		m := newMember(Member{Request: 100, Limit: 200})
		m.silent, m.balance = 4, balance
		if m.endTick(0, 1, true, tick); m.silent != want {
			t.Errorf("with %d tokens silent for %d ticks, want %d", balance, m.silent, want)
		}
	}
}

// TestLeastTokens: a best-effort share always has one token, even if its request is worth less.
func TestLeastTokens(t *testing.T) {
	s, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	m := newMember(Member{Priority: share.BestEffort, Request: 1, Limit: 900, MaxTokens: 1000})
	s.pressure = Pressure{State: Contention}
	for last, want := range map[int64]int64{0: 1, 1: 1, 2: 2} {
		if m.last = last; s.bestEffortTokens(m) != want {
			t.Errorf("%d tokens after %d, want %d", s.bestEffortTokens(m), last, want)
		}
	}
}
