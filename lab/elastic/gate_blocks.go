package elastic

import (
	"time"

	"github.com/gshare-dev/gshare/lab/device"
	"github.com/gshare-dev/gshare/vgpu/share"
	"github.com/gshare-dev/gshare/vgpu/token"
	"github.com/gshare-dev/gshare/vgpu/token/rckm"
)

// blockGate is a simulated token server for tokens counted in thread blocks: a client may launch while it has credit.
type blockGate struct {
	slice  *rckm.Slice
	credit []int64
	since  []rckm.Launches // the last report
	used   []time.Duration // device time, reported
	check  time.Duration   // the next tick

	batches bool // the hook reports batches
}

// newBlockGate returns a token server with all clients as members, trainings as best effort. If the setting has a factor, a member's
// MaxTokens is fixed at that multiple of the value at which the blocks that its function launches without neighbours equal the tokens of
// its request.
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
		_ = b.slice.Report(now, token.ID(k), l) // all are members
		b.since[k] = rckm.Launches{}
	}
	changes, _ := b.slice.Advance(now)
	for _, change := range changes {
		b.credit[change.ID] = change.Token.Amount
	}
	return b.check
}
