package token

import (
	"testing"
	"time"

	"github.com/gshare-dev/gshare/vgpu/packing/slot"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// watch plays until the given time, and calls after following each call of Advance.
func (r *referee) watch(end time.Duration, after func()) {
	for r.now < end && r.fault == nil {
		r.until(min(end, r.next, (r.now/settling+1)*settling))
		after()
	}
}

// TestWholeQuotaBesideOverruns checks that a share with the whole quota never waits for a token, although the shares that take turns beside
// it overrun their tokens, that it never owes time, and that no two overruns and its token take more SMs than there are.
func TestWholeQuotaBesideOverruns(t *testing.T) {
	for _, policy := range []Policy{Table, Fast} {
		t.Run(policy.String(), func(t *testing.T) {
			crowds := 0
			for seed := range uint64(300) {
				r := seeded(seed)
				ref, err := newReferee(Config{Policy: policy}, kernels(r, 6*ms))
				if err != nil {
					t.Fatal(err)
				}
				ref.reports = true
				list, wholes := wholeCrowd(ref, seed)
				if len(list) < 3 {
					continue
				}
				crowds++
				for _, p := range list {
					ref.want(p, true)
				}
				ref.until(2 * ref.slice.config.Window) // until then a share may wait for its turns
				ref.watch(time.Second, func() {
					for _, p := range wholes {
						if !p.live || ref.slice.Overruns(p.ID).Debt > 0 {
							t.Fatalf("seed %d: at %v %+v waits, %v", seed, ref.now, p.Member, ref.fault)
						}
					}
				})
				if ref.fault != nil {
					t.Fatalf("seed %d: %v", seed, ref.fault)
				}
			}
			if crowds < 100 {
				t.Errorf("only %d crowds", crowds)
			}
		})
	}
}

// wholeCrowd adds random shares that fit into a slot table, of which every third one has the whole quota.
func wholeCrowd(r *referee, seed uint64) (all, wholes []*pod) {
	random := seeded(seed)
	var items []slot.Item
	for id := range ID(8) {
		m := randomMember(random, id)
		if id%3 == ID(seed%3) {
			m.SM, m.QuotaRequest, m.QuotaLimit = m.SM/2, share.Whole, share.Whole
		}
		if _, fits := slot.Solve(append(items[:len(items):len(items)], slot.Item{SM: m.SM, Quota: m.QuotaRequest}), r.slice.config.Window, r.slice.config.Reserve); !fits {
			continue
		}
		items = append(items, slot.Item{SM: m.SM, Quota: m.QuotaRequest})
		p := r.join(m)
		all = append(all, p)
		if id%3 == ID(seed%3) {
			wholes = append(wholes, p)
		}
	}
	return all, wholes
}

// TestRaisedToTheWholeQuota checks that a share whose request is raised to the whole quota takes no SMs from others before the next slot table,
// which gives it its turns.
func TestRaisedToTheWholeQuota(t *testing.T) {
	ref, err := newReferee(Config{}, func() time.Duration { return 0 })
	if err != nil {
		t.Fatal(err)
	}
	p := ref.join(Member{1, 500, 0, share.Whole})
	others := []*pod{ref.join(Member{2, 500, 490, 490}), ref.join(Member{3, 500, 490, 490})}
	for _, o := range others {
		ref.want(o, true)
	}
	window := ref.slice.config.Window
	ref.until(window + 10*ms)
	ref.check(ref.slice.Reshape(ref.now, p.ID, share.Whole, share.Whole))
	ref.want(p, true)
	ref.until(2*window - ms)
	if p.live {
		t.Error("it has a token before it has turns")
	}
	ref.until(3 * window)
	for _, o := range append(others, p) {
		want := ref.slice.config.windowFraction(o.QuotaRequest)
		if o == p {
			want = window
		}
		if got := o.got(2*window, 3*window); ref.fault != nil || got < want-ms {
			t.Errorf("share %d had %v of the next window, want %v: %v", o.ID, got, want, ref.fault)
		}
	}
}
