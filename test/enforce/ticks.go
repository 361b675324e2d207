package enforce

import (
	"time"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// Tick is in which block tokens are issued.
const Tick = 5 * time.Millisecond

// Issue is what a pod had right after a tick.
type Issue struct {
	At     time.Duration
	SMs    share.PerMille // what its latest token is worth
	Blocks int64          // of that token, after what was launched beyond the one before
}

// Ticks are the issues of one pod, in order.
type Ticks []Issue

// Watch lets the machine run on until the given time, and notes at each tick what each pod has.
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

// Excess is by how many blocks a pod's kernels, of so many blocks each, were beyond what was issued, in the worst period of a
// length. A tick may be exceeded by one batch of each thread, a sixteenth of its token or a kernel; the next one pays that.
func (t Ticks) Excess(s Spans, kernel, threads int64, length time.Duration) int64 {
	n := int(length / Tick)
	worst, sum, beyond, paid := int64(-1<<62), make([]int64, len(t)+1), int64(0), int64(0)
	for i, issue := range t {
		launched := kernel * int64(s.Launched(issue.At, issue.At+Tick))
		sum[i+1] = sum[i] + launched - issue.Blocks - paid
		beyond = threads * max(kernel, issue.Blocks/16)
		paid = min(max(0, launched-issue.Blocks), beyond)
		if i+1 >= n {
			worst = max(worst, sum[i+1]-sum[i+1-n]-beyond)
		}
	}
	return worst
}

// First is when, from a time on, an issue was as asked for; zero if none was.
func (t Ticks) First(from time.Duration, asked func(Issue) bool) time.Duration {
	for _, issue := range t {
		if issue.At >= from && asked(issue) {
			return issue.At
		}
	}
	return 0
}

// Issued is how many blocks were issued from one time to another, less what pays for launches beyond earlier tokens.
func (t Ticks) Issued(from, to time.Duration) (blocks int64) {
	for _, issue := range t {
		if issue.At >= from && issue.At < to {
			blocks += issue.Blocks
		}
	}
	return blocks
}

// Launched is how many kernels were launched from one time to another.
func (s Spans) Launched(from, to time.Duration) (n int) {
	for _, span := range s {
		if span.At > from && span.At <= to {
			n++
		}
	}
	return n
}
