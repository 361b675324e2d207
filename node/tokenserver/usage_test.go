package tokenserver

import (
	"testing"
	"time"
)

// fixedClock is a clock whose time a test sets.
type fixedClock struct {
	RealClock
	now time.Duration
}

func (c *fixedClock) Now() time.Duration { return c.now }

func TestLimiter(t *testing.T) {
	const perSecond = 100
	clock := &fixedClock{now: time.Hour}
	s := New(Config{Clock: clock})
	l := newLimiter(perSecond)
	for range 2 * perSecond {
		if !s.allowEvent(l) {
			t.Fatal("two seconds' worth at once is refused")
		}
	}
	if s.allowEvent(l) {
		t.Error("more than two seconds' worth at once is allowed")
	}
	allowed := 0
	for ms := range 10_000 {
		if clock.now = time.Hour + time.Duration(ms)*time.Millisecond; s.allowEvent(l) {
			allowed++
		}
	}
	if allowed < 10*perSecond-1 || allowed > 10*perSecond {
		t.Errorf("%d frames in 10 s, want %d", allowed, 10*perSecond)
	}
	if clock.now = 1000 * time.Hour; !s.allowEvent(l) {
		t.Error("refused after a long time")
	}
	clock.now = 0
	for range 2*perSecond - 1 {
		s.allowEvent(l)
	}
	if s.allowEvent(l) {
		t.Error("time that goes backwards adds credit")
	}
}

func TestMeter(t *testing.T) {
	var m recentUse
	for tenth := range 30 {
		m.add(time.Duration(tenth)*100*time.Millisecond, 40*time.Millisecond)
	}
	if got := m.total(2900 * time.Millisecond); got != 400*time.Millisecond {
		t.Errorf("40 of each 100 ms are %v of a second", got)
	}
	if got := m.total(3400 * time.Millisecond); got != 200*time.Millisecond {
		t.Errorf("half a second later: %v", got)
	}
	if got := m.total(time.Hour); got != 0 {
		t.Errorf("an hour later: %v", got)
	}
	m.add(time.Hour, time.Minute)
	if got := m.total(time.Hour); got != time.Second {
		t.Errorf("more than a second: %v", got)
	}
}

func TestWaits(t *testing.T) {
	var w Waits
	for _, wait := range []time.Duration{0, 100 * time.Microsecond, 100*time.Microsecond + 1, 5 * time.Second, time.Hour} {
		w.add(wait, 100*time.Millisecond)
	}
	last := len(w.Buckets) - 1
	if w.Count != 5 || w.Stalls != 2 || w.Buckets[0] != 2 || w.Buckets[1] != 1 || w.Buckets[last-1] != 1 || w.Buckets[last] != 1 ||
		w.Sum != time.Hour+5*time.Second+200*time.Microsecond+1 {
		t.Errorf("got %+v", w)
	}
}
