package elastic

import (
	"time"

	"github.com/gshare-dev/gshare/lab/device"
	"github.com/gshare-dev/gshare/vgpu/share"
	"github.com/gshare-dev/gshare/vgpu/token"
)

// timeGate is a simulated token server for time tokens: a client may launch while it holds a token. Clients use the SMs of their limits; if
// these do not fit together, the requests divide the window.
type timeGate struct {
	slice *token.Slice
	live  []bool
	want  []bool
	used  []time.Duration // settled
	check time.Duration   // next settlement
}

func newTimeGate(policy token.Policy, c []*client) (*timeGate, error) {
	slice, err := token.New(token.Config{Policy: policy})
	if err != nil {
		return nil, err
	}
	t := &timeGate{slice: slice, live: make([]bool, len(c)), want: make([]bool, len(c)), used: make([]time.Duration, len(c))}
	requests, limits := sums(c)
	for k, client := range c {
		request, limit := client.Shares()
		m := token.Member{ID: token.ID(k), SM: limit, QuotaRequest: share.Whole, QuotaLimit: share.Whole}
		if limits > share.Whole {
			m.QuotaRequest = share.Whole * request / requests
		}
		if err := slice.Join(0, m); err != nil {
			return nil, err
		}
	}
	return t, nil
}

func sums(c []*client) (requests, limits share.PerMille) {
	for _, client := range c {
		request, limit := client.Shares()
		requests, limits = requests+request, limits+limit
	}
	return requests, limits
}

func (t *timeGate) may(k int) bool                     { return t.live[k] }
func (t *timeGate) launched(time.Duration, int, int64) {}

func (t *timeGate) advance(now time.Duration, c []*client, d *device.Device) time.Duration {
	for k := range c {
		t.ask(now, k, c[k].isBusy() && now >= c[k].resume)
		if now >= t.check {
			use := d.Usage(c[k].process).Busy
			_ = t.slice.Settle(now, token.ID(k), use-t.used[k]) // all are members
			t.used[k] = use
		}
	}
	if now >= t.check {
		t.check = now + tick
	}
	changes, next := t.slice.Advance(now)
	for _, change := range changes {
		t.live[change.ID] = change.Kind != token.Revoke
	}
	return min(next, t.check)
}

func (t *timeGate) ask(now time.Duration, k int, want bool) {
	switch {
	case want && !t.want[k]:
		_ = t.slice.RequestToken(now, token.ID(k))
	case !want && t.want[k]:
		_ = t.slice.ReleaseToken(now, token.ID(k))
	}
	t.want[k] = want
}
