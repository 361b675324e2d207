package delivery

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"time"

	"github.com/gshare-dev/gshare/lab/shapes"
	"github.com/gshare-dev/gshare/vgpu/token"
)

// Setting configures a simulation: the token policy, the window of quotas, the turn, the time lost at a switch, and the simulated time.
type Setting struct {
	Policy     token.Policy
	Window     time.Duration
	Turn       time.Duration
	SwitchLoss time.Duration // lost at the start of each token that follows a pause
	Seconds    int           // simulated time
}

// Outcome is the result of simulating one GPU: the smallest fraction of its quota that a pod got, and the longest time without progress.
type Outcome struct {
	WorstShare float64       // smallest fraction of its quota that a pod got in any second
	LongestGap time.Duration // longest time that a pod made no progress
}

// settlePeriod is the period in which a token server reads the use of its clients.
const settlePeriod = 5 * time.Millisecond

// Run simulates the pods of a GPU, all of them always busy and limited to their quota. The first two windows are not counted, as all pods
// join at once, some in the middle of their turns.
func Run(g GPU, s Setting) (Outcome, error) {
	r := &runner{setting: s}
	if err := r.join(g); err != nil {
		return Outcome{}, err
	}
	warm := 2 * s.Window
	r.runUntil(warm)
	r.endSecond()
	r.out = Outcome{WorstShare: math.Inf(1)}
	for second := range s.Seconds {
		r.runUntil(warm + time.Duration(second+1)*time.Second)
		r.endSecond()
	}
	return r.out, nil
}

// runner simulates the token server of one GPU and its clients.
type runner struct {
	setting Setting
	slice   *token.Slice
	clients []client
	now     time.Duration
	next    time.Duration // time of the next Advance
	out     Outcome
}

// client simulates a pod that computes whenever it holds a token.
type client struct {
	pod     shapes.Pod
	live    bool
	from    time.Duration // end of the counted time; later than now during a switch
	last    time.Duration // time of its latest progress
	pending time.Duration // counted but not yet settled
	second  time.Duration // counted in the present second
}

func (r *runner) join(g GPU) (err error) {
	s := r.setting
	r.slice, err = token.New(token.Config{Policy: s.Policy, Window: s.Window, Turn: s.Turn, Reserve: g.Reserve})
	if err != nil {
		return err
	}
	for k, p := range g.Pods {
		id := token.ID(k)
		r.clients = append(r.clients, client{pod: p})
		if err := r.slice.Join(0, token.Member{ID: id, SM: p.SM, QuotaRequest: p.Quota, QuotaLimit: p.Quota}); err != nil {
			return fmt.Errorf("pod %d: %w", k, err)
		}
		if err := r.slice.RequestToken(0, id); err != nil {
			return err
		}
	}
	r.advance()
	return nil
}

// runUntil advances the token server to the given time, stopping at every settlement and every change of tokens.
func (r *runner) runUntil(end time.Duration) {
	for r.now < end {
		tick := (r.now/settlePeriod + 1) * settlePeriod
		r.now = min(tick, r.next, end)
		r.settle()
		r.advance()
	}
}

func (r *runner) settle() {
	for k := range r.clients {
		c := &r.clients[k]
		r.countProgress(c)
		_ = r.slice.Settle(r.now, token.ID(k), c.pending) // cannot fail: all clients are members
		c.pending = 0
	}
}

// countProgress adds the time for which the client has computed up to now.
func (r *runner) countProgress(c *client) {
	if !c.live || c.from >= r.now {
		return
	}
	if c.from > c.last {
		r.out.LongestGap = max(r.out.LongestGap, c.from-c.last)
	}
	c.pending += r.now - c.from
	c.second += r.now - c.from
	c.from, c.last = r.now, r.now
}

func (r *runner) advance() {
	changes, next := r.slice.Advance(r.now)
	r.next = next
	for _, change := range changes {
		c := &r.clients[change.ID]
		switch change.Kind {
		case token.Grant:
			c.live, c.from = true, r.now+r.setting.SwitchLoss
		case token.Revoke:
			c.live = false
		}
	}
}

// endSecond records the smallest fraction of its quota that a pod got in the second that ends now, and the longest time without progress.
func (r *runner) endSecond() {
	for k := range r.clients {
		c := &r.clients[k]
		r.out.LongestGap = max(r.out.LongestGap, r.now-c.last)
		got := float64(c.second) / (float64(c.pod.Quota) / 1000 * float64(time.Second))
		r.out.WorstShare = min(r.out.WorstShare, got)
		c.second = 0
	}
}

// Total sums up the results of all GPUs.
type Total struct {
	Pods        int
	WorstShares []float64 // of each GPU
	LongestGap  time.Duration
}

// minServed is the fraction of its quota from which a pod counts as served.
const minServed = 0.99

// RunAll simulates the GPUs one after another and returns their total.
func RunAll(ctx context.Context, gpus []GPU, s Setting) (Total, error) {
	var total Total
	for k, g := range gpus {
		if err := ctx.Err(); err != nil {
			return Total{}, err
		}
		out, err := Run(g, s)
		if err != nil {
			return Total{}, fmt.Errorf("GPU %d: %w", k, err)
		}
		total.Pods += len(g.Pods)
		total.WorstShares = append(total.WorstShares, out.WorstShare)
		total.LongestGap = max(total.LongestGap, out.LongestGap)
	}
	return total, nil
}

// ServedPercent returns the percentage of GPUs on which every pod got at least 99 % of its quota in each second.
func (t Total) ServedPercent() float64 {
	n := 0
	for _, share := range t.WorstShares {
		if share >= minServed {
			n++
		}
	}
	return 100 * float64(n) / float64(len(t.WorstShares))
}

// MeanWorstShare returns the mean, over all GPUs, of the smallest fraction of its quota that a pod of the GPU got.
func (t Total) MeanWorstShare() float64 {
	sum := 0.0
	for _, share := range t.WorstShares {
		sum += share
	}
	return sum / float64(len(t.WorstShares))
}

// The published orders of FaST-GShare, for comparison with the product's policies.
var (
	// HeadOfLine is the token queue as the FaST-GShare paper describes it: the member with the largest missing time comes first, and no
	// member overtakes another one.
	HeadOfLine token.Policy = token.Queue{Name: "hol", NewOrder: token.By(byMissingTime), Barrier: func(time.Duration) time.Duration { return 0 }}
	// SkipAhead is the token queue of FaST-GShare's published code, but with SMs counted while selecting: every member that fits gets a
	// token.
	SkipAhead token.Policy = token.Queue{Name: "skip", NewOrder: token.Fast.(token.Queue).NewOrder, Barrier: func(time.Duration) time.Duration { return token.Never }}
)

// Policies returns the token policies that can be compared: those of a node, its default first, and the published orders.
func Policies() []token.Policy { return append(token.Policies(), HeadOfLine, SkipAhead) }

// byMissingTime compares members of a queue by missing time, Q_miss = Q_request - Q_used, the largest first.
func byMissingTime(a, b token.Waiting) int { return cmp.Compare(b.Missing, a.Missing) }
