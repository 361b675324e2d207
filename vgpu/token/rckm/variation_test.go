package rckm

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

const us = time.Microsecond

// inference describes batches that arrive at random. Their lengths have a lognormal distribution, as those of models that answer requests of
// different sizes on a host that does other things, too.
type inference struct {
	perSecond float64
	median    time.Duration
	spread    float64 // standard deviation of the logarithm of the length
}

// batch is work of an inference. It begins when it has arrived and the one before has ended.
type batch struct{ arrived, length time.Duration }

func (f inference) batches(seed uint64, until time.Duration) (list []batch) {
	r := rand.New(rand.NewPCG(seed, 1))
	for at := time.Duration(0); at < until; {
		at += time.Duration(r.ExpFloat64() / f.perSecond * float64(time.Second))
		list = append(list, batch{at, time.Duration(float64(f.median) * math.Exp(r.NormFloat64()*f.spread))})
	}
	return list
}

// server plays batches in ticks.
type server struct {
	batches  []batch
	from, to time.Duration // of the batch under way or the latest one
	slowdown float64       // of batches that begin
}

// tick returns what happens in the tick that ends now.
func (s *server) tick(now time.Duration) Launches {
	l := Launches{First: now}
	for {
		if from, to := max(s.from, now-tick), min(s.to, now); from < to {
			l.First, l.Last = min(l.First, from), to
			l.Blocks += 1 + int64(to-from)/int64(us)
			l.Device += (to - from) / 3
			if s.to <= now {
				l.Batch = max(l.Batch, s.to-s.from)
			}
			l.Busy = s.to > now
		}
		if s.to > now || len(s.batches) == 0 || s.batches[0].arrived >= now {
			return l
		}
		s.from = max(s.to, s.batches[0].arrived)
		s.to = s.from + time.Duration(float64(s.batches[0].length)*s.slowdown)
		s.batches = s.batches[1:]
	}
}

// besideTraining plays an inference beside a training that always has work for three tenths of the SMs, of the nine tenths that it may use.
// From a quarter of the time on, batches that begin while it has tokens for that work take longer by the given factor. It returns the part
// of that work that the training launched from then on, and the part of the time in EMERGENCY.
func besideTraining(t *testing.T, f inference, seed uint64, slowdown float64) (launched, emergency float64) {
	t.Helper()
	const whole, until = 10_000, 20 * time.Second
	m := newPair(t, 400, whole)
	m.advance(0)
	s, need := server{batches: f.batches(seed, until)}, blocksOf(whole, 300)
	ticks, got := int64(0), int64(0)
	for now := tick; now <= until; now += tick {
		s.slowdown = 1
		if now > until/4 && m.grants[2] >= need {
			s.slowdown = slowdown
		}
		l, n := s.tick(now), m.take(2, need)
		if now > until/4 {
			ticks, got = ticks+1, got+n
			if m.Pressure().State == Emergency {
				emergency++
			}
		}
		if err := m.Report(now, 1, l); err != nil {
			t.Fatal(err)
		}
		device := tick * time.Duration(n) / time.Duration(blocksOf(whole, 900))
		if err := m.Report(now, 2, Launches{Blocks: n, First: now - tick, Last: now, Busy: true, Device: device}); err != nil {
			t.Fatal(err)
		}
		m.advance(now)
	}
	return float64(got) / float64(ticks*need), emergency / float64(ticks)
}

// TestVariation checks that batches which vary by themselves, and lie anywhere between two ticks, are no contention: the training beside
// them is hardly ever cut. As a control, it is cut if it makes them take twice as long.
func TestVariation(t *testing.T) {
	for _, c := range []struct {
		inference
		launched, emergency float64 // the least and the most
	}{
		{inference{35, 2200 * us, 0}, 0.9, 0},
		{inference{35, 2200 * us, 0.1}, 0.9, 0.02},
		{inference{35, 2200 * us, 0.2}, 0.85, 0.1},
		{inference{20, 6 * ms, 0.2}, 0.85, 0.1},
		{inference{20, 25 * ms, 0.2}, 0.65, 0.15},
		{inference{3, 200 * ms, 0.2}, 0.65, 0.3},
	} {
		t.Run(fmt.Sprintf("%v, spread %v", c.median, c.spread), func(t *testing.T) {
			for seed := range uint64(5) {
				launched, emergency := besideTraining(t, c.inference, seed, 1)
				if launched < c.launched || emergency > c.emergency {
					t.Errorf("seed %d: launched %.3f of its work, %.3f of the time in EMERGENCY; want at least %v and at most %v",
						seed, launched, emergency, c.launched, c.emergency)
				}
				if launched, emergency := besideTraining(t, c.inference, seed, 2); launched > 0.85 || emergency < 0.2 {
					t.Errorf("seed %d, twice as slow: launched %.3f of its work, %.3f of the time in EMERGENCY", seed, launched, emergency)
				}
			}
		})
	}
}

// TestHostStopsWaiting checks that an SLO share whose host waits for a few batches, and then launches without a pause and never waits again,
// does not keep its neighbour in EMERGENCY: nobody knows how long its batches are.
func TestHostStopsWaiting(t *testing.T) {
	for batches := range time.Duration(6) {
		m := newPair(t, 500, 1000)
		m.loads = []load{{2, 300, 0, 10 * time.Second, 0}}
		for k := range batches {
			m.loads = append(m.loads, load{1, 200, k * 50 * ms, k*50*ms + 20*ms, 20 * ms})
		}
		m.loads = append(m.loads, load{1, 200, batches * 50 * ms, 10 * time.Second, 0})
		m.advance(0)
		emergencies := 0
		m.until(10*time.Second, func(now time.Duration) {
			if now > 2*time.Second && m.Pressure().State == Emergency {
				emergencies++
			}
		})
		if emergencies > 0 {
			t.Errorf("after %d batches: %d ticks in EMERGENCY", batches, emergencies)
		}
	}
}
