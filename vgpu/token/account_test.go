package token

import (
	"testing"
	"time"
)

// bruteAccount is an account that counts single units of time.
type bruteAccount struct {
	window, budget int
	busy           []bool
}

func (b *bruteAccount) allows(now, length int) bool {
	busy := append(append([]bool{}, b.busy[:now]...), make([]bool, length)...)
	for k := now; k < now+length; k++ {
		busy[k] = true
	}
	for end := now + 1; end <= now+length; end++ {
		used := 0
		for k := max(0, end-b.window); k < end; k++ {
			if busy[k] {
				used++
			}
		}
		if used > b.budget {
			return false
		}
	}
	return true
}

// TestAccountAgreesWithCounting compares with a bruteAccount how long use may last and when use of some length may begin.
func TestAccountAgreesWithCounting(t *testing.T) {
	const unit = time.Duration(1000)
	for seed := range uint64(400) {
		r := seeded(seed)
		b := &bruteAccount{window: 10 + r.IntN(10), busy: make([]bool, 200)}
		b.budget = 1 + r.IntN(b.window)
		l := &account{window: time.Duration(b.window) * unit, budget: time.Duration(b.budget) * unit}
		for now := 0; now < 60; now++ {
			room := 0
			for room < b.budget && b.allows(now, room+1) {
				room++
			}
			if got := min(l.longestUse(time.Duration(now)*unit), l.budget); got != time.Duration(room)*unit {
				t.Fatalf("seed %d, at %d: room %v, counted %d: %v", seed, now, got, room, l)
			}
			for length := 1; length <= b.budget; length++ {
				if got := l.earliestStart(time.Duration(length)*unit) <= time.Duration(now)*unit; got != b.allows(now, length) {
					t.Fatalf("seed %d, at %d: may run for %d: %v", seed, now, length, got)
				}
			}
			if run := r.IntN(4); run > 0 && run <= room {
				l.reserve(time.Duration(now)*unit, time.Duration(run)*unit)
				for range run {
					b.busy[now] = true
					now++
				}
			}
		}
	}
}

func TestAccountCorrects(t *testing.T) {
	l := &account{window: 100, budget: 50}
	l.reserve(0, 20)
	l.correct(20, -5)
	l.reserve(40, 10)
	l.correct(55, 5) // after the token
	if got := l.used(0); got != 30 {
		t.Errorf("used %v, want 30", got)
	}
	l.correct(60, -20) // more than the last one
	if got := l.used(0); got != 10 {
		t.Errorf("used %v, want 10", got)
	}
	l.correct(60, -50)
	if got := l.used(0); got != 0 {
		t.Errorf("used %v, want nothing", got)
	}
}
