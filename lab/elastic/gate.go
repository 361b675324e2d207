package elastic

import (
	"time"

	"github.com/gshare-dev/gshare/vgpu/device"
	"github.com/gshare-dev/gshare/vgpu/share"
	"github.com/gshare-dev/gshare/vgpu/token"
	"github.com/gshare-dev/gshare/vgpu/token/rckm"
)

// gate is a simulated token server, which decides which clients may launch kernels. It reads the state of the clients every 5 ms, and at
// the times that advance returns.
type gate interface {
	may(k int) bool                                                                // reports whether client k may launch
	launched(now time.Duration, k int, blocks int64)                               // records a launch
	advance(now time.Duration, c []*client, d *device.Device) (next time.Duration) // must be called again at next
}

// tick is the period in which the simulated token servers read the state of their clients.
const tick = 5 * time.Millisecond

// openGate lets every client launch: only the SM caps of MPS divide the GPU.
type openGate struct{}

func (openGate) may(int) bool                                                           { return true }
func (openGate) launched(time.Duration, int, int64)                                     {}
func (openGate) advance(now time.Duration, _ []*client, _ *device.Device) time.Duration { return never }

// priorityGate is a token server like that of TGS. The first client may always launch. The rate of the other client is halved in each tick
// in which the first has work, and otherwise grows by a hundredth of the rate that fills the GPU.
type priorityGate struct {
	rate, full, credit int64 // in blocks per tick
	check              time.Duration
}

func newPriorityGate(c []*client) *priorityGate {
	full := c[1].Saturation(1000, tick)
	return &priorityGate{rate: full, full: full}
}

func (p *priorityGate) may(k int) bool { return k == 0 || p.credit > 0 }

func (p *priorityGate) launched(_ time.Duration, k int, n int64) {
	if k == 1 {
		p.credit -= n
	}
}

func (p *priorityGate) advance(now time.Duration, c []*client, _ *device.Device) time.Duration {
	if now < p.check {
		return p.check
	}
	p.check = now + tick
	if c[0].isBusy() {
		p.rate /= 2
	} else {
		p.rate += p.full / 100
	}
	p.rate = min(max(p.rate, p.full/1000, 1), p.full)
	p.credit = min(p.credit, 0) + p.rate
	return p.check
}

// timeGate is a simulated token server for time tokens: a client may launch while it holds a token. Clients use the SMs of their limits. If
// the limits do not fit together, the clients divide the window in proportion to their requests.
type timeGate struct {
	slice *token.Slice
	live  []bool
	want  []bool
	used  []time.Duration // device time settled so far
	check time.Duration   // time of the next settlement
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
			_ = t.slice.Settle(now, token.ID(k), use-t.used[k]) // cannot fail: all clients are members
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

// blockGate is a simulated token server for tokens counted in thread blocks: a client may launch while it has credit.
type blockGate struct {
	slice  *rckm.Slice
	credit []int64
	since  []rckm.Launches // as last reported
	used   []time.Duration // device time reported so far
	check  time.Duration   // time of the next tick

	batches bool // whether the hook reports batches
}

// newBlockGate returns a token server with all clients as members, trainings as best effort. If the setting has a factor, MaxTokens of a
// member is fixed: it is the factor times the value at which the tokens of its request equal the blocks that its function launches
// without neighbours.
func newBlockGate(s Setting, c []*client) (*blockGate, error) {
	config := rckm.Config{Tick: tick}
	if s.Policy == "rckm-printed" {
		config.Algorithm = PublishedAlgorithm
	}
	slice, err := rckm.New(config)
	if err != nil {
		return nil, err
	}
	b := &blockGate{slice: slice, credit: make([]int64, len(c)), since: make([]rckm.Launches, len(c)), used: make([]time.Duration, len(c)), batches: s.Policy != "rckm-gaps"}
	for k, client := range c {
		m := rckm.Member{ID: token.ID(k), Priority: share.SLO}
		m.Request, m.Limit = client.Shares()
		if client.Trains {
			m.Priority = share.BestEffort
		}
		saturation := client.Saturation(m.Limit, tick) * int64(share.Whole) / int64(m.Request)
		m.MaxTokens = int64(s.MaxTokens * float64(saturation))
		if err := slice.Join(0, m); err != nil {
			return nil, err
		}
	}
	return b, nil
}

func (b *blockGate) may(k int) bool { return b.credit[k] > 0 }

func (b *blockGate) launched(now time.Duration, k int, n int64) {
	b.credit[k] -= n
	l := &b.since[k]
	if l.Blocks == 0 {
		l.First = now
	}
	l.Blocks, l.Last = l.Blocks+n, now
}

func (b *blockGate) advance(now time.Duration, c []*client, d *device.Device) time.Duration {
	if now < b.check {
		return b.check
	}
	b.check = (now/tick + 1) * tick
	for k := range c {
		l := b.since[k]
		l.Busy = c[k].flying > 0
		if b.batches {
			l.Batch = c[k].batch
		}
		c[k].batch = 0
		use := d.Usage(c[k].process).Busy
		l.Device, b.used[k] = use-b.used[k], use
		_ = b.slice.Report(now, token.ID(k), l) // cannot fail: all clients are members
		b.since[k] = rckm.Launches{}
	}
	changes, _ := b.slice.Advance(now)
	for _, change := range changes {
		b.credit[change.ID] = change.Token.Amount
	}
	return b.check
}
