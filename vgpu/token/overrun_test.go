package token

import (
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
