package tokenserver

import (
	"testing"
	"time"
)

func TestLimiter(t *testing.T) {
	const rate = 100
	l := newLimiter(rate, time.Hour)
	for range 2 * rate {
		if !l.allow(time.Hour) {
			t.Fatal("two seconds' worth at once is too much")
		}
	}
	if l.allow(time.Hour) {
		t.Error("more than two seconds' worth at once is allowed")
	}
	allowed := 0
	for ms := range 10_000 {
		if l.allow(time.Hour + time.Duration(ms)*time.Millisecond) {
			allowed++
		}
	}
	if allowed < 10*rate-1 || allowed > 10*rate {
		t.Errorf("%d frames in 10 s, want %d", allowed, 10*rate)
	}
	if !l.allow(1000*time.Hour) || l.allow(0) && l.allow(0) && l.saved > 2*rate*int64(time.Second) {
		t.Error("a long time overflows, or time that goes back gives credit")
	}
}

func TestMeter(t *testing.T) {
	var m meter
	for tenth := range 30 {
		m.add(time.Duration(tenth)*100*time.Millisecond, 40*time.Millisecond)
	}
	if got := m.second(2900 * time.Millisecond); got != 400*time.Millisecond {
		t.Errorf("40 of each 100 ms are %v of a second", got)
	}
	if got := m.second(3400 * time.Millisecond); got != 200*time.Millisecond {
		t.Errorf("half a second later %v", got)
	}
	if got := m.second(time.Hour); got != 0 {
		t.Errorf("an hour later %v", got)
	}
	m.add(time.Hour, time.Minute)
	if got := m.second(time.Hour); got != time.Second {
		t.Errorf("more than everything: %v", got)
	}
}

func TestGhostsExpire(t *testing.T) {
	g := newGhosts([]uint64{1, 2}, time.Second)
	g.end(1)
	g.end(7)
	if g.expire(time.Second - 1); !g.any() {
		t.Error("it is gone before its lease")
	}
	if g.expire(time.Second); g.any() {
		t.Error("it is there after its lease")
	}
}

func TestWaits(t *testing.T) {
	var w Waits
	for _, wait := range []time.Duration{0, 100 * time.Microsecond, 100*time.Microsecond + 1, 5 * time.Second, time.Hour} {
		w.add(wait, 100*time.Millisecond)
	}
	last := len(w.Classes) - 1
	if w.Count != 5 || w.Stalls != 2 || w.Classes[0] != 2 || w.Classes[1] != 1 || w.Classes[last-1] != 1 || w.Classes[last] != 1 ||
		w.Sum != time.Hour+5*time.Second+200*time.Microsecond+1 {
		t.Errorf("got %+v", w)
	}
}
