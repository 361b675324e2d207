package token

import (
	"testing"
	"time"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// holding returns a member that has a token in a turn of its own.
func holding() *member {
	m := &member{live: true, ownTurns: ownTurns{owner: true}}
	m.own = account{window: 100 * ms, budget: 100 * ms}
	m.account = &m.own
	return m
}

// TestSettle checks that use reported in another settlement than it was made in is neither counted twice nor lost.
func TestSettle(t *testing.T) {
	c, m, last := Config{}.withDefaults(), holding(), time.Duration(0)
	for k, step := range []struct {
		at, busy, debt, credit time.Duration
		live                   bool
	}{
		{10 * ms, 10 * ms, 0, 0, true},
		{20 * ms, 9 * ms, 0, ms, true},         // a kernel goes on
		{30 * ms, 11 * ms, 0, 0, true},         // and is reported at its end, later than it ran
		{40 * ms, 13 * ms, 0, 0, true},         // nobody computes for longer than the time
		{50 * ms, 4 * ms, 0, 6 * ms, true},     // but what was possible
		{51 * ms, 7 * ms, 0, 0, true},          // may be reported later
		{55 * ms, 2 * ms, 2 * ms, 0, false},    // use without a token
		{56 * ms, 0, ms, 0, true},              // is paid by time not used
		{60 * ms, 0, 0, 3 * ms, true},          // and the rest of that is to be made up for
		{460 * ms, 0, 0, c.Window, true},       // a window at most
		{461 * ms, 400 * ms, 0, 0, true},       // of both
		{462 * ms, -400 * ms, 0, 1 * ms, true}, // nonsense is nothing
	} {
		if m.live && !step.live {
			m.endToken(last)
		} else if !m.live && step.live {
			m.live, m.heldSince = true, last
		}
		m.addReportable(step.at-last, c.Window, m.live)
		last = step.at
		m.settle(step.at, step.busy, c.Window, c.Window)
		if m.debt != step.debt || m.credit != step.credit {
			t.Errorf("step %d: debt %v, credit %v, want %v and %v", k, m.debt, m.credit, step.debt, step.credit)
		}
	}
	m.credit = c.Window
	if m.startOwnTime(last+10*ms, c.Floor); m.credit != c.Floor {
		t.Errorf("%v of the turn before are kept, want %v", m.credit, c.Floor)
	}
}

// TestSettleKeepsCount checks that over any number of late reports, the debt is the use less the time held.
func TestSettleKeepsCount(t *testing.T) {
	c := Config{}.withDefaults()
	for seed := range uint64(100) {
		r, m := seeded(seed), holding()
		for now, used := time.Duration(0), time.Duration(0); now < time.Second; {
			d := time.Duration(1 + r.Int64N(int64(4*ms)))
			now += d
			m.addReportable(d, c.Window, m.live)
			total := now - time.Duration(r.Int64N(int64(ms))) // the kernel that runs is not reported
			busy := max(0, total-used)
			used += busy
			m.settle(now, busy, c.Window, c.Window)
			if got, want := m.debt-m.credit, used-now; got != want {
				t.Fatalf("seed %d, at %v: owes %v, used %v more than it held", seed, now, got, want)
			}
		}
	}
}

// TestLateStartsAreMadeUpFor checks that a member that starts late in its turn because of a neighbour's overrun makes up for it
// from the table's reserve, in this turn or another one.
func TestLateStartsAreMadeUpFor(t *testing.T) {
	for seed := range uint64(40) {
		r := seeded(seed)
		ref, err := newReferee(Config{Reserve: 50}, func() time.Duration { return 0 })
		if err != nil {
			t.Fatal(err)
		}
		ref.late = kernels(r, ms)
		a, b := ref.join(Member{1, 600, 300, 300}), ref.join(Member{2, 600, 650, 650})
		ref.want(a, true)
		ref.want(b, true)
		ref.until(3 * time.Second)
		if err := ref.verdict(ref.slice.config.Floor); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		for _, p := range []*pod{a, b} {
			want := ref.slice.config.windowFraction(p.QuotaRequest) * 10 * 99 / 100
			if got := p.got(time.Second, 2*time.Second); got < want {
				t.Fatalf("seed %d: %+v got %v in a second, want %v", seed, p.Member, got, want)
			}
		}
	}
}

// TestOverrunsAreMadeGood checks that kernels which overrun their turns do not reduce the share of the next member, which cannot
// tell waiting for them from running.
func TestOverrunsAreMadeGood(t *testing.T) {
	for seed := range uint64(10) {
		ref, err := newReferee(Config{Reserve: 50}, kernels(seeded(seed), 10*ms))
		if err != nil {
			t.Fatal(err)
		}
		pods := []*pod{ref.join(Member{1, 100, 250, 250}), ref.join(Member{2, 1000, 700, 700})}
		for _, p := range pods {
			ref.want(p, true)
		}
		ref.until(3 * time.Second)
		for _, p := range pods {
			want := ref.slice.config.windowFraction(p.QuotaRequest) * 20 * 98 / 100 // as for whole GPUs
			if got := p.got(time.Second, 3*time.Second); ref.fault != nil || got < want {
				t.Errorf("seed %d: %+v got %v in two seconds, want %v: %v", seed, p.Member, got, want, ref.fault)
			}
		}
	}
}

// TestWholeQuotaNeverWaits checks that a share with the whole quota has a token at all times at which it has work, also if it reports its
// work late, or if kernels go on when a token ends or is released: its SMs are its own all the time.
func TestWholeQuotaNeverWaits(t *testing.T) {
	for _, policy := range policies {
		t.Run(policy.String(), func(t *testing.T) {
			s, err := New(Config{Policy: policy})
			if err != nil {
				t.Fatal(err)
			}
			r, now := seeded(1), time.Duration(0)
			check := func(err error) {
				if err != nil {
					t.Fatal(err)
				}
			}
			check(s.Join(now, Member{1, 120, share.Whole, share.Whole}))
			check(s.Join(now, Member{2, 120, share.Whole, share.Whole}))
			check(s.RequestToken(now, 2))
			m := s.members[0]
			pass := func(longest time.Duration) {
				for end := now + time.Duration(r.Int64N(int64(longest))); now < end; {
					_, next := s.Advance(now)
					if m.hasWork && !m.live {
						t.Fatalf("at %v: it waits for a token, and owes %v", now, m.owed())
					}
					now = min(end, next)
				}
			}
			for range 200 {
				began := now
				check(s.RequestToken(now, 1))
				pass(30 * ms)
				check(s.ReportOpenWork(now, 1, LongWork))
				pass(300 * ms)
				check(s.ReleaseToken(now, 1))
				pass(300 * ms) // its kernels go on
				if r.IntN(2) == 0 {
					check(s.ReportOpenWork(now, 1, NoWork))
				}
				check(s.Settle(now, 1, now-began))
			}
			if got := s.Overruns(1); got.Debt != 0 || got.Caused != 0 || got.Long {
				t.Errorf("it did not stay within its part: %+v", got)
			}
		})
	}
}
