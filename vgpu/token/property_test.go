package token

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/gshare-dev/gshare/vgpu/share"
)

const ms = time.Millisecond

// policies are those of the product, and queues with the two other kinds of barrier.
var policies = append(Policies(),
	Queue{Name: "no overtaking", NewOrder: By(byRelativeBacklog), Barrier: func(time.Duration) time.Duration { return 0 }},
	Queue{Name: "free overtaking", NewOrder: By(byRelativeBacklog), Barrier: func(time.Duration) time.Duration { return Never }},
)

func seeded(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 1)) }

func between(r *rand.Rand, low, high int) int { return low + r.IntN(high-low+1) }

func randomMember(r *rand.Rand, id ID) Member {
	quota := share.PerMille(between(r, 10, 700))
	if r.IntN(8) == 0 {
		quota = share.Whole
	}
	limit := quota
	if r.IntN(2) == 0 {
		limit = share.PerMille(between(r, int(quota), 1000))
	}
	return Member{id, share.PerMille(between(r, 50, 700)), quota, limit}
}

// kernels returns a source of random overruns up to the longest.
func kernels(r *rand.Rand, longest time.Duration) func() time.Duration {
	return func() time.Duration { return time.Duration(r.Int64N(int64(longest) + 1)) }
}

// TestRandomLives lets members join, leave, work and idle at random: SMs and limits hold, and tokens are granted and revoked in
// turn.
func TestRandomLives(t *testing.T) {
	for _, policy := range policies {
		t.Run(policy.String(), func(t *testing.T) {
			for seed := range uint64(80) {
				r := seeded(seed)
				longest := []time.Duration{0, ms / 2, 4 * ms}[seed%3]
				referee := randomLife(t, r, Config{Policy: policy, Reserve: share.PerMille(r.IntN(100))}, longest)
				beyond := longest
				if longest > 0 && policy == Table { // what a share lost to a kernel of another it may use in the next window, as in that of seed 73
					beyond += referee.slice.config.Floor
				}
				if err := referee.verdict(beyond); err != nil {
					t.Fatalf("seed %d: %v", seed, err)
				}
			}
		})
	}
}

func randomLife(t *testing.T, r *rand.Rand, c Config, longest time.Duration) *referee {
	t.Helper()
	ref, err := newReferee(c, kernels(r, longest))
	if err != nil {
		t.Fatal(err)
	}
	for id := ID(0); ref.now < 2*time.Second && ref.fault == nil; id++ {
		ref.randomEvent(r, id)
		ref.until(ref.now + time.Duration(r.Int64N(int64(30*ms))))
	}
	return ref
}

func (r *referee) randomEvent(random *rand.Rand, id ID) {
	var here []*pod
	for _, p := range r.pods {
		if p.here {
			here = append(here, p)
		}
	}
	if len(here) == 0 || random.IntN(4) == 0 && len(here) < 12 {
		if p := r.join(randomMember(random, id)); p != nil {
			r.want(p, true)
		}
		return
	}
	switch p := here[random.IntN(len(here))]; random.IntN(6) {
	case 0:
		r.leave(p)
	case 1, 2:
		r.want(p, false)
	default:
		r.want(p, true)
	}
}

// verdict returns the first violation: of the rules that the referee checks, or of a limit, which no window may exceed by more than a time.
func (r *referee) verdict(beyond time.Duration) error {
	for _, p := range r.pods {
		window := r.slice.config.Window
		allowed := r.slice.config.windowFraction(p.QuotaLimit) + beyond + 2*roundingTolerance
		if most := p.most(window, 0, r.now); most > allowed {
			r.fail("%+v used %v of a window, %v allowed", p.Member, most, allowed)
		}
	}
	return r.fault
}

// TestRefereeFindsFaults is the negative control: the referee notices free SMs that do not exist, and accounts that forget use.
func TestRefereeFindsFaults(t *testing.T) {
	sabotage := map[string]func(*Slice){
		"SMs":    func(s *Slice) { s.free += 300 },
		"limits": func(s *Slice) { s.members[0].own.intervals, s.members[0].borrowed.intervals = nil, nil },
	}
	for name, harm := range sabotage {
		for _, policy := range policies {
			t.Run(name+", "+policy.String(), func(t *testing.T) {
				ref, err := newReferee(Config{Policy: policy}, func() time.Duration { return 0 })
				if err != nil {
					t.Fatal(err)
				}
				for id := range ID(3) {
					ref.want(ref.join(Member{id, 450, 300, 310}), true)
				}
				for k := range 20 {
					harm(ref.slice)
					ref.until(time.Duration(k+1) * 7 * ms)
				}
				if err := ref.verdict(0); err == nil {
					t.Error("no fault found")
				}
			})
		}
	}
}

// TestTableDelivers checks that under a table every member that always has work gets its request in each second and its part of
// each window, whatever the others do. An overrun is paid from the next token, so at each end of the second it can shift use by its length.
func TestTableDelivers(t *testing.T) {
	for seed := range uint64(80) {
		r := seeded(seed)
		longest := []time.Duration{0, 0, 3 * ms}[seed%3]
		ref, err := newReferee(Config{Reserve: share.PerMille(r.IntN(60))}, kernels(r, longest))
		if err != nil {
			t.Fatal(err)
		}
		intermittent := ref.crowd(r)
		for ref.now < 1500*ms && ref.fault == nil {
			if len(intermittent) > 0 {
				ref.want(intermittent[r.IntN(len(intermittent))], r.IntN(2) == 0)
			}
			ref.until(ref.now + time.Duration(r.Int64N(int64(40*ms))))
		}
		if err := ref.delivered(longest); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
}

// crowd adds members as long as they fit. Every third one has work only at times, and is returned.
func (r *referee) crowd(random *rand.Rand) (intermittent []*pod) {
	for id := range ID(12) {
		p := r.join(randomMember(random, id))
		if p == nil {
			continue
		}
		r.want(p, true)
		if id%3 == 2 {
			intermittent = append(intermittent, p)
		}
	}
	return intermittent
}

// TestOwnersReturn checks that a member whose turns were lent while it was idle gets its request within a window of its return,
// except for one turn.
func TestOwnersReturn(t *testing.T) {
	for seed := range uint64(60) {
		r := seeded(seed)
		ref, err := newReferee(Config{}, func() time.Duration { return 0 })
		if err != nil {
			t.Fatal(err)
		}
		ref.crowd(r)
		p := ref.pods[r.IntN(len(ref.pods))]
		ref.until(300 * ms)
		ref.want(p, false)
		back := 450*ms + time.Duration(r.Int64N(int64(200*ms)))
		ref.until(back)
		ref.want(p, true)
		ref.until(back + ref.slice.config.Window)
		want := ref.slice.config.windowFraction(p.QuotaRequest) - ref.slice.longestTurn(p.ID) - 20*roundingTolerance
		if got := p.got(back, ref.now); ref.fault != nil || got < want {
			t.Fatalf("seed %d: %+v got %v in the window after its return, want %v: %v", seed, p.Member, got, want, ref.fault)
		}
	}
}

// TestIdleTimeIsLent checks that a member below its limit runs whenever the others leave enough SMs idle.
func TestIdleTimeIsLent(t *testing.T) {
	for _, policy := range policies {
		t.Run(policy.String(), func(t *testing.T) {
			ref, err := newReferee(Config{Policy: policy}, func() time.Duration { return 0 })
			if err != nil {
				t.Fatal(err)
			}
			ref.join(Member{1, 600, 500, 500})
			p := ref.join(Member{2, 600, 300, 900})
			ref.want(p, true)
			ref.until(time.Second)
			if got := p.got(200*ms, ref.now); ref.fault != nil || got < 700*ms {
				t.Errorf("%v of 800 ms, the limit is 90 %%: %v", got, ref.fault)
			}
		})
	}
}

// delivered checks the members that always had work, once the table has run for a window: they join in the first one, and use
// before the table changed counts in the second.
func (r *referee) delivered(longest time.Duration) error {
	for _, p := range r.pods {
		if p.ID%3 == 2 {
			continue
		}
		for length, missing := range map[time.Duration]time.Duration{
			time.Second:           2 * longest,
			r.slice.config.Window: longest + r.slice.longestTurn(p.ID),
		} {
			want := length*time.Duration(p.QuotaRequest)/1000 - missing - 20*roundingTolerance
			if got := p.least(length, 3*r.slice.config.Window, r.now); got < want {
				r.fail("%+v got %v in %v, want %v", p.Member, got, length, want)
			}
		}
	}
	return r.fault
}

// longestTurn returns the length of the longest turn of a member.
func (s *Slice) longestTurn(id ID) (longest time.Duration) {
	for _, x := range s.issuer.(*tableIssuer).turns {
		for _, o := range x.owners {
			if o.ID == id {
				longest = max(longest, x.end-x.start)
			}
		}
	}
	return longest
}
