package token

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// idleOnly returns a share that gets only the time that others leave.
func idleOnly(id ID) Member { return Member{id, 600, 0, share.Whole} }

// TestIdleTimeOnly: a share without a request gets nothing beside a busy share that has the whole window, all the time when alone, and
// the rest beside one that has a part of the window.
func TestIdleTimeOnly(t *testing.T) {
	for _, policy := range []Policy{Table, Fast} {
		for _, c := range []struct {
			name        string
			hot         share.PerMille // its quota; 0: it is idle
			least, most time.Duration  // of the other share in a second
		}{
			{"alone", 0, 990 * ms, 1000 * ms},
			{"beside a part", 400, 450 * ms, 610 * ms},
			{"beside all", share.Whole, 0, 0},
		} {
			t.Run(fmt.Sprintf("%s, %s", policy, c.name), func(t *testing.T) {
				ref, err := newReferee(Config{Policy: policy}, func() time.Duration { return 0 })
				if err != nil {
					t.Fatal(err)
				}
				p := ref.join(idleOnly(1))
				hot := ref.join(Member{2, 600, max(c.hot, 1), max(c.hot, 1)})
				ref.want(hot, c.hot > 0)
				ref.want(p, true)
				ref.until(1200 * ms)
				if got := p.got(200*ms, ref.now); ref.fault != nil || got < c.least || got > c.most {
					t.Errorf("%v of a second, want %v to %v: %v", got, c.least, c.most, ref.fault)
				}
				if got, want := hot.got(200*ms, ref.now), time.Duration(c.hot)*ms*95/100; got < want {
					t.Errorf("the other got %v, want %v", got, want)
				}
			})
		}
	}
}

// TestIdleTimeEndsSoon: a share whose time another one uses while it has no work runs within a turn of its return.
func TestIdleTimeEndsSoon(t *testing.T) {
	for _, policy := range []Policy{Table, Fast} {
		t.Run(policy.String(), func(t *testing.T) {
			ref, err := newReferee(Config{Policy: policy}, func() time.Duration { return 0 })
			if err != nil {
				t.Fatal(err)
			}
			hot, p := ref.join(Member{1, 600, 1000, 1000}), ref.join(idleOnly(2))
			ref.want(p, true)
			for k := range time.Duration(20) {
				back := 200*ms + k*33*ms
				ref.until(back)
				if !p.live {
					t.Fatal("control: the time is not lent")
				}
				ref.want(hot, true)
				ref.until(back + 6*ms)
				if !hot.live {
					t.Errorf("it waits longer than a turn, since %v", back)
				}
				ref.until(back + 15*ms)
				ref.want(hot, false)
			}
		})
	}
}

// TestReshapeBack: a share that gave up its request gets it again in full, from the window after its return on, whatever it used and
// overran in between, and others get theirs all the time.
func TestReshapeBack(t *testing.T) {
	for _, policy := range []Policy{Table, Fast} {
		for seed := range uint64(30) {
			r := seeded(seed)
			longest := []time.Duration{0, ms, 30 * ms}[seed%3]
			current := longest
			ref, err := newReferee(Config{Policy: policy}, func() time.Duration { return current })
			if err != nil {
				t.Fatal(err)
			}
			ref.reports = seed%2 == 0
			p, other := ref.join(Member{1, 600, 400, 400}), ref.join(Member{2, 600, 500, 500})
			ref.want(p, true)
			for ref.now < 2*time.Second && ref.fault == nil {
				if r.IntN(8) == 0 {
					ref.reshape(p, 0, share.Whole)
				}
				ref.want(other, r.IntN(2) == 0)
				ref.until(ref.now + time.Duration(r.Int64N(int64(40*ms))))
			}
			ref.want(other, true)
			ref.reshape(p, 0, share.Whole)
			ref.until(ref.now + 300*ms)
			current = 0
			ref.until(ref.now + 100*ms)
			ref.reshape(p, 400, 400)
			back := ref.now + 2*ref.slice.config.Window
			ref.until(back + time.Second)
			for _, q := range []*pod{p, other} {
				if got, want := q.got(back, ref.now), time.Duration(q.QuotaRequest)*ms*97/100; ref.fault != nil || got < want {
					t.Errorf("%v, seed %d: %+v got %v in a second after it, want %v: %v", policy, seed, q.Member, got, want, ref.fault)
				}
			}
		}
	}
}

// TestIdleTimeAfterOverrun: a share without a request waits for as long as it overran, but not for ever, also if the overrun was longer
// than a window.
func TestIdleTimeAfterOverrun(t *testing.T) {
	for _, kernel := range []time.Duration{10 * ms, 250 * ms} {
		for _, policy := range []Policy{Table, Fast} {
			t.Run(fmt.Sprintf("%s, %v", policy, kernel), func(t *testing.T) {
				overrun := kernel
				ref, err := newReferee(Config{Policy: policy}, func() time.Duration { return overrun })
				if err != nil {
					t.Fatal(err)
				}
				ref.reports = true
				hot, p := ref.join(Member{1, 600, 500, 500}), ref.join(idleOnly(2))
				ref.want(p, true)
				ref.until(200 * ms)
				overrun = 0
				ref.want(hot, true) // it can stop the other one at the end of a token only
				for p.live {
					overrun = kernel
					ref.until(ref.now + ms)
				}
				overrun = 0
				end := ref.now
				ref.until(end + kernel - 2*ms)
				if p.live {
					t.Error("it runs while its kernel overruns")
				}
				ref.until(end + 2*kernel - 10*ms)
				if got := p.got(end+kernel, ref.now); got > 0 && kernel > 100*ms {
					t.Errorf("%v used before the overrun is repaid", got)
				}
				from := end + 2*kernel + 200*ms
				ref.until(from + time.Second)
				if got := p.got(from, ref.now); ref.fault != nil || got < 400*ms {
					t.Errorf("%v of a second of which half is idle: %v", got, ref.fault)
				}
			})
		}
	}
}

// TestRandomReshapes lets shares join, leave, work, give up their requests and get them back at random: SMs hold, and tokens are granted and
// revoked in turn.
func TestRandomReshapes(t *testing.T) {
	for _, policy := range policies {
		for seed := range uint64(30) {
			r := seeded(seed)
			ref, err := newReferee(Config{Policy: policy}, kernels(r, []time.Duration{0, ms / 2, 4 * ms}[seed%3]))
			if err != nil {
				t.Fatal(err)
			}
			for id := ID(0); ref.now < time.Second && ref.fault == nil; id++ {
				ref.randomEvent(r, id)
				if p := ref.pods[r.IntN(len(ref.pods))]; p.here {
					request := share.PerMille(r.IntN(2) * between(r, 10, 700))
					ref.tryReshape(p, request, share.Whole)
				}
				ref.until(ref.now + time.Duration(r.Int64N(int64(30*ms))))
			}
			if ref.fault != nil {
				t.Fatalf("%v, seed %d: %v", policy, seed, ref.fault)
			}
		}
	}
}

// TestReshapeTakesTurns: a share that gives up its request loses its token and its turns at once, not with the next window.
func TestReshapeTakesTurns(t *testing.T) {
	ref, err := newReferee(Config{}, func() time.Duration { return 0 })
	if err != nil {
		t.Fatal(err)
	}
	p, other := ref.join(Member{1, 600, 500, 500}), ref.join(Member{2, 600, 400, 400})
	ref.want(p, true)
	ref.want(other, true)
	for !p.live {
		ref.until(ref.now + ms)
	}
	ref.reshape(p, 0, share.Whole)
	if m := ref.slice.members[0]; m.owner || m.live && m.account == &m.own {
		t.Errorf("it owns the turn: %t, it holds a token: %t", m.owner, m.live)
	}
	for _, x := range ref.slice.issuer.(*tableIssuer).turns {
		for _, o := range x.owners {
			if o.ID == 1 {
				t.Error("it has a turn")
			}
		}
	}
}

// TestReshapeRefuses: the request of a share does not come back where others have taken its time, and nothing changes then.
func TestReshapeRefuses(t *testing.T) {
	s, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.Join(0, Member{1, 600, 600, 600}), s.Reshape(0, 1, 0, 1000), s.Join(0, Member{2, 600, 600, 600})); err != nil {
		t.Fatal(err)
	}
	if err := s.Reshape(0, 1, 600, 600); !errors.Is(err, ErrDoesNotFit) {
		t.Errorf("120 %% of the window: %v", err)
	}
	if m := s.members[0]; m.QuotaRequest != 0 || m.own.budget != 0 {
		t.Errorf("after the refusal it is %+v", m.Member)
	}
	if err := s.Reshape(0, 3, 0, 1000); !errors.Is(err, ErrUnknown) {
		t.Errorf("unknown share: %v", err)
	}
	if s.Reshape(0, 1, 500, 400) == nil || s.Reshape(0, 1, 0, 0) == nil {
		t.Error("an invalid request is accepted")
	}
	if err := errors.Join(s.Leave(0, 2), s.Reshape(0, 1, 600, 600)); err != nil {
		t.Error(err)
	}
}

// reshape changes what a client requests.
func (r *referee) reshape(p *pod, request, limit share.PerMille) {
	if !r.tryReshape(p, request, limit) {
		r.fail("%+v cannot request %v to %v", p.Member, request, limit)
	}
}

// tryReshape changes what a client requests if that fits.
func (r *referee) tryReshape(p *pod, request, limit share.PerMille) bool {
	err := r.slice.Reshape(r.now, p.ID, request, limit)
	if err == nil {
		p.QuotaRequest, p.QuotaLimit = request, limit
	} else if !errors.Is(err, ErrDoesNotFit) {
		r.fail("%v", err)
	}
	r.advance()
	return err == nil
}
