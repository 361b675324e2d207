package token

import (
	"errors"
	"testing"
	"time"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// TestLongOverruns lets shares launch kernels that are much longer than their turns: over a minute each share has its quota of the slot
// table, and none has more.
func TestLongOverruns(t *testing.T) {
	const minute, start = time.Minute, time.Second
	for name, longest := range map[string]time.Duration{"50 ms": 50 * ms, "300 ms": 300 * ms, "1 s": time.Second} {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(6) {
				r := seeded(seed)
				long := kernels(r, longest)
				ref, err := newReferee(Config{Reserve: 50}, func() time.Duration {
					if r.IntN(3) == 0 {
						return long()
					}
					return 0
				})
				if err != nil {
					t.Fatal(err)
				}
				ref.reports = true
				for id, quota := range []share.PerMille{100, 250, 500} {
					ref.want(ref.join(Member{ID(id), 600, quota, quota}), true)
				}
				ref.until(start + minute)
				for _, p := range ref.pods {
					want := minute * time.Duration(p.QuotaRequest) / 1000
					slack := max(minute*2/100, longest)
					if got := p.got(start, start+minute); ref.fault != nil || got < want-slack || got > want+slack {
						t.Errorf("seed %d: %+v got %v in a minute, want %v: %v", seed, p.Member, got, want, ref.fault)
					}
				}
			}
		})
	}
}

// TestLongOverrunsControl is the negative control: without reports of unfinished work, the neighbour does not make up for its loss.
func TestLongOverrunsControl(t *testing.T) {
	ref, err := newReferee(Config{Reserve: 50}, func() time.Duration { return 300 * ms })
	if err != nil {
		t.Fatal(err)
	}
	long, other := ref.join(Member{1, 600, 200, 200}), ref.join(Member{2, 600, 600, 600})
	ref.want(long, true)
	ref.want(other, true)
	ref.until(20 * time.Second)
	if got := other.got(0, ref.now); got > 11*time.Second {
		t.Errorf("a share of 60 %% got %v of 20 s", got)
	}
}

// TestDebtAlone checks that a share repays a long kernel only while another one has work: alone, it may use idle time at once.
func TestDebtAlone(t *testing.T) {
	for name, test := range map[string]struct {
		neighbour bool
		low, high time.Duration // of the second that begins a second after the kernel
	}{
		"alone":              {false, 900 * ms, time.Second},
		"beside a neighbour": {true, 0, 10 * ms},
	} {
		t.Run(name, func(t *testing.T) {
			overrun := 4 * time.Second
			ref, err := newReferee(Config{}, func() (d time.Duration) { d, overrun = overrun, 0; return d })
			if err != nil {
				t.Fatal(err)
			}
			ref.reports = true
			p, other := ref.join(Member{1, 600, 200, 1000}), ref.join(Member{2, 600, 600, 600})
			ref.want(p, true)
			ref.until(10 * ms)
			if test.neighbour {
				ref.want(other, true)
			}
			ref.until(20 * ms)
			ref.want(p, false) // launches the kernel
			ref.want(p, true)
			ref.until(6 * time.Second)
			if got := p.got(5*time.Second, 6*time.Second); ref.fault != nil || got < test.low || got > test.high {
				t.Errorf("got %v, want %v to %v: %v", got, test.low, test.high, ref.fault)
			}
		})
	}
}

// TestFalseClaims checks that a share that claims unfinished work and has none delays the others for at most maxOverrun at once, and that
// it loses as much of its own time, however long it claims and however often.
func TestFalseClaims(t *testing.T) {
	for name, test := range map[string]struct {
		claim time.Duration // length of each claim; the next one begins a millisecond later
		least time.Duration // what the other share gets of its 36 s of a minute
	}{
		"for good":                  {Never, 35 * time.Second},
		"longer than is believed":   {6 * time.Second, 36*time.Second - maxOverrun}, // the last one is not made good yet
		"1 s":                       {time.Second, 35 * time.Second},
		"50 ms":                     {50 * ms, 35 * time.Second},
		"as long as is tolerated":   {overrunTolerance, 35 * time.Second},
		"shorter than is tolerated": {2 * ms, 35 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := New(Config{})
			if err != nil {
				t.Fatal(err)
			}
			const liar, other = 1, 2
			if err := errors.Join(s.Join(0, Member{liar, 600, 200, 200}), s.Join(0, Member{other, 600, 600, 600})); err != nil {
				t.Fatal(err)
			}
			live, got := map[ID]bool{}, map[ID]time.Duration{}
			var began, waits, longest, used time.Duration // used: since the latest settlement of the liar
			for now := ms; now < time.Minute; now += ms {
				claims := LongWork
				if now-began > test.claim {
					claims, began = NoWork, now
				}
				err := errors.Join(s.RequestToken(now, liar), s.RequestToken(now, other), s.ReportOpenWork(now, liar, claims))
				for _, id := range []ID{liar, other} {
					if live[id] {
						got[id] += ms
					}
				}
				if live[liar] {
					used += ms
				}
				if live[other] {
					waits = now
					err = errors.Join(err, s.Settle(now, other, ms))
				}
				if claims == NoWork {
					err = errors.Join(err, s.Settle(now, liar, used))
					used = 0
				}
				if err != nil {
					t.Fatal(err)
				}
				longest = max(longest, now-waits)
				changes, _ := s.Advance(now)
				for _, c := range changes {
					live[c.ID] = c.Kind != Revoke
				}
			}
			t.Logf("the share that claims got %v, the other %v, and waited for at most %v", got[liar], got[other], longest)
			if longest > maxOverrun+100*ms {
				t.Errorf("the other waited for %v", longest)
			}
			if got[other] < test.least {
				t.Errorf("the other got %v of a minute, want %v", got[other], test.least)
			}
		})
	}
}
