package enforce

import (
	"time"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// Tick is the period in which block tokens are issued.
const Tick = 5 * time.Millisecond

// Issue is the token of a pod right after a tick.
type Issue struct {
	At     time.Duration
	SMs    share.PerMille // what its latest token is worth
	Blocks int64          // of that token, after what was launched beyond the one before
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

// Excess returns by how many blocks the launches of a pod, whose kernels have that many blocks each, exceeded what was issued in
// the worst period of a length. Launches may exceed a tick by one batch of each thread, a sixteenth of its token (or of the one before,
// if it was taken under that) or one kernel, which the next tick pays.
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

// First returns the time of the first issue from a time on that meets the condition, or zero.
func (t Ticks) First(from time.Duration, asked func(Issue) bool) time.Duration {
	for _, issue := range t {
		if issue.At >= from && asked(issue) {
			return issue.At
		}
	}
	return 0
}

// Issued returns how many blocks were issued in a period, after payment for launches beyond earlier tokens.
func (t Ticks) Issued(from, to time.Duration) (blocks int64) {
	for _, issue := range t {
		if issue.At >= from && issue.At < to {
			blocks += issue.Blocks
		}
	}
	return blocks
}
