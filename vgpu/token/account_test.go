package token

import (
	"slices"
	"testing"
	"time"

	"github.com/gshare-dev/gshare/vgpu/packing/slot"
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

// TestSettleCorrectsAccount: of the time that was held and not used, what does not repay debt is returned to the account.
func TestSettleCorrectsAccount(t *testing.T) {
	for debt, used := range map[time.Duration]time.Duration{0: 7 * ms, ms: 8 * ms, 3 * ms: 10 * ms, 5 * ms: 10 * ms} {
		m := holding()
		m.own.reserve(0, 10*ms)
		m.heldSince, m.reportable, m.debt = 0, 100*ms, debt
		m.settle(10*ms, 7*ms, 100*ms, 0)
		if got := m.own.used(0); got != used || m.debt != max(0, debt-3*ms) {
			t.Errorf("with a debt of %v: used %v, left with a debt of %v; want %v", debt, got, m.debt, used)
		}
	}
}

// TestRoundUp rounds to multiples of a unit.
func TestRoundUp(t *testing.T) {
	for d, want := range map[time.Duration]time.Duration{0: 0, 1: 5, 4: 5, 5: 5, 6: 10, 10: 10, 11: 15} {
		if got := roundUp(d, 5); got != want {
			t.Errorf("%d is rounded to %d, want %d", d, got, want)
		}
	}
}

// TestTurnLengths: turns are multiples of Config.Turn if they fit the window, also if they fill it exactly; otherwise each gets an equal part.
func TestTurnLengths(t *testing.T) {
	c := Config{Reserve: 50}.withDefaults()
	for name, x := range map[string]struct{ turns, want []time.Duration }{
		"room left": {[]time.Duration{20 * ms, 20 * ms, 30 * ms}, []time.Duration{30 * ms, 30 * ms, 40 * ms}},
		"exactly":   {[]time.Duration{28200 * time.Microsecond, 33 * ms, 33 * ms}, []time.Duration{30 * ms, 35 * ms, 35 * ms}},
		"too short": {[]time.Duration{31 * ms, 31 * ms, 32 * ms}, []time.Duration{33 * ms, 33 * ms, 34 * ms}},
		"full":      {[]time.Duration{50 * ms, 50 * ms}, []time.Duration{50 * ms, 50 * ms}},
	} {
		table := slot.Table{Window: 100 * ms}
		for _, d := range x.turns {
			table.Turns = append(table.Turns, slot.Turn{Duration: d})
		}
		if got := turnLengths(c, table); !slices.Equal(got, x.want) {
			t.Errorf("%s: %v, want %v", name, got, x.want)
		}
	}
}

// TestLongOverrunIsReported: work that runs on for more than a turn after a token is long, and a share counts as wanting the device until
// contentionMemory after it last did.
func TestLongOverrunIsReported(t *testing.T) {
	for over, long := range map[time.Duration]bool{5 * ms: false, 5*ms + 1: true} {
		s, err := New(Config{})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Join(0, Member{1, 600, 600, 600}); err != nil {
			t.Fatal(err)
		}
		s.members[0].overruns = true
		s.elapse(over)
		s.now = over
		if got := s.Overruns(1); got.Long != long || got.Caused != over {
			t.Errorf("%v after its token: %+v", over, got)
		}
	}
	m, other := &member{}, &member{}
	other.lastWanted = ms
	for after, want := range map[time.Duration]bool{contentionMemory - 1: true, contentionMemory: false} {
		if got := (members{m, other}).isContended(m, ms+after); got != want {
			t.Errorf("contended %v after the other wanted the device: %v", after, got)
		}
	}
}

// TestDebtIsCharged checks that device time with which a share pays a debt counts in its account, as its tokens do.
func TestDebtIsCharged(t *testing.T) {
	indebted := func() *member {
		m := holding()
		m.own.budget, m.debt = 50*ms, 80*ms
		return m
	}
	m := indebted()
	m.repay(0)
	if m.debt != 30*ms || m.own.used(-time.Second) != 50*ms || m.own.longestUse(0) > 0 {
		t.Errorf("repaid at once: debt %v, account %v", m.debt, m.own)
	}
	m = indebted()
	if lost := m.passOwnTime(0, 20*ms); lost != 0 || m.debt != 60*ms || m.own.used(-time.Second) != 20*ms {
		t.Errorf("repaid with 20 ms of own time: debt %v, account %v, lost %v", m.debt, m.own, lost)
	}
	if lost := m.passOwnTime(20*ms, 60*ms); lost != 30*ms || m.debt != 30*ms {
		t.Errorf("repaid with more own time than the account allows: debt %v, account %v, lost %v", m.debt, m.own, lost)
	}
	m = indebted()
	if got := m.repayableDebt(&m.own, 2*ms); got != 48*ms {
		t.Errorf("a token repays %v of 80 ms, want all of the budget of 50 ms but 2 ms", got)
	}
}
