package enforce

import (
	"time"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// Tick is the period in which block tokens are issued.
const Tick = 5 * time.Millisecond

// Issue is the state of a pod's token right after a tick.
type Issue struct {
	At     time.Duration
	SMs    share.PerMille // worth of the latest token
	Blocks int64          // of that token, less what was launched beyond the previous one
}

// Ticks are the issues of one pod, in order.
type Ticks []Issue

// Watch runs the machine until the given time, and appends the issues of each pod after every tick.
func (m *Machine) Watch(until time.Duration, all []Ticks) ([]Ticks, error) {
	if all == nil {
		all = make([]Ticks, len(m.Pods))
	}
	for m.now+Tick <= until {
		m.now += Tick
		if err := m.GPU.Run(m.now); err != nil {
			return all, err
		}
		for i, c := range m.Served {
			status := c.Status().VGPUs[0]
			all[i] = append(all[i], Issue{m.now, status.CurrentSMs, status.Blocks})
		}
	}
	return all, nil
}

// Excess returns by how many blocks a pod's launches exceeded the issued blocks, in the worst period of the given length. Each kernel
// has the given number of blocks. The launches of a tick may exceed its token by one batch for each thread, where a batch is the larger
// of one kernel and a sixteenth of the token (or of the previous token, under which it may have been taken); the next tick pays for
// that.
func (t Ticks) Excess(s Spans, kernel, threads int64, length time.Duration) int64 {
	n := int(length / Tick)
	worst, sum, beyond, paid := int64(-1<<62), make([]int64, len(t)+1), int64(0), int64(0)
	before := int64(0)
	for i, issue := range t {
		launched := kernel * int64(s.Launched(issue.At, issue.At+Tick))
		sum[i+1] = sum[i] + launched - issue.Blocks - paid
		beyond = threads * max(kernel, issue.Blocks/16, before/16)
		before = issue.Blocks
		paid = min(max(0, launched-issue.Blocks), beyond)
		if i+1 >= n {
			worst = max(worst, sum[i+1]-sum[i+1-n]-beyond)
		}
	}
	return worst
}

// First returns the time of the first issue at or after a time that meets the condition, or zero.
func (t Ticks) First(from time.Duration, asked func(Issue) bool) time.Duration {
	for _, issue := range t {
		if issue.At >= from && asked(issue) {
			return issue.At
		}
	}
	return 0
}

// Issued returns how many blocks were issued in a period, net of payment for launches beyond earlier tokens.
func (t Ticks) Issued(from, to time.Duration) (blocks int64) {
	for _, issue := range t {
		if issue.At >= from && issue.At < to {
			blocks += issue.Blocks
		}
	}
	return blocks
}
