// Package load sends requests to a server at times that do not depend on its answers, and measures how long they take.
//
// Latencies count from the time for which a request was scheduled, not from when it was sent. If a server stalls for a second, the requests of that
// second count as late, even though a client that waits for answers would not have sent them (coordinated omission). The client also measures its own
// lateness, and says when it was too slow for its figures to be those of the server.
package load

import (
	"cmp"
	"context"
	"iter"
	"sync"
	"time"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// Plan describes the requests to send.
type Plan struct {
	// Schedule yields the time of each request after the start, in ascending order. The requests before WarmUp are sent but not measured.
	Schedule iter.Seq[time.Duration]
	WarmUp   time.Duration
	Length   time.Duration // length of the whole run, from which rates are computed

	Timeout     time.Duration // timeout of one request, from when it is sent; default 30 s
	MaxInFlight int           // most requests at once; a request due beyond that is not sent; default 10,000
	SLO         time.Duration // time within which a request counts as answered in time; 0: none
}

func (p *Plan) setDefaults() {
	p.Timeout = cmp.Or(p.Timeout, 30*time.Second)
	p.MaxInFlight = cmp.Or(p.MaxInFlight, 10_000)
}

// Validate returns a *share.FieldError for a plan that Run would refuse.
func (p *Plan) Validate() error {
	switch {
	case p.Schedule == nil:
		return share.Invalid("schedule", "is missing")
	case p.Length <= 0 || p.Length > maxLength:
		return share.Invalid("length", "%v is not above 0 and at most %v", p.Length, maxLength)
	case p.WarmUp < 0 || p.WarmUp >= p.Length:
		return share.Invalid("warmUp", "%v is not within the length, %v", p.WarmUp, p.Length)
	case p.Timeout < 0 || p.Timeout > maxLatency:
		return share.Invalid("timeout", "%v is outside 0 to %v", p.Timeout, maxLatency)
	case p.MaxInFlight < 0:
		return share.Invalid("maxInFlight", "%d is negative", p.MaxInFlight)
	case p.SLO < 0 || p.SLO > maxLatency:
		return share.Invalid("slo", "%v is outside 0 to %v", p.SLO, maxLatency)
	}
	return nil
}

// Longest run and longest latency, which bound the memory of a result.
const (
	maxLength  = 7 * 24 * time.Hour
	maxLatency = time.Hour
)

// Answer is what became of one request.
type Answer struct {
	OK     bool
	Status string // for a request that is not OK, a short reason, such as "503" or "timeout"
	// First is when the first token of a streamed answer came, and Tokens how many came; both are zero if answers are not streamed.
	First  time.Time
	Tokens int
}

// Sender sends requests. Send is called concurrently, with the number of the request. It returns once the answer is complete or ctx is cancelled.
type Sender interface {
	Send(ctx context.Context, n int) Answer
}

// Progress tells how far a run has come.
type Progress struct {
	Elapsed                time.Duration
	Sent, Failed, InFlight int
}

// Run sends the requests of a plan and returns the results after the last answer. report, unless nil, is called once a second. If ctx is cancelled,
// no more requests are sent, those in flight are given up, and Result.Interrupted is set. The error is a *share.FieldError.
func Run(ctx context.Context, p Plan, s Sender, report func(Progress)) (*Result, error) {
	p.setDefaults()
	if err := p.Validate(); err != nil {
		return nil, err
	}
	r := &run{plan: p, sender: s, start: time.Now(), recorder: newRecorder(p)}
	stop := r.reportProgress(report)
	defer stop()
	r.sendAll(ctx)
	r.wait.Wait()
	return r.recorder.result(time.Since(r.start), ctx.Err() != nil), nil
}

// run is one run of a plan.
type run struct {
	plan   Plan
	sender Sender
	start  time.Time
	wait   sync.WaitGroup // for the requests under way

	mu       sync.Mutex // guards what follows
	recorder *recorder
	progress Progress
}

func (r *run) sendAll(ctx context.Context) {
	n := 0
	for at := range r.plan.Schedule {
		if !sleepUntil(ctx, r.start.Add(at)) {
			return
		}
		if r.begin(at) {
			number := n
			n++
			r.wait.Go(func() { r.send(ctx, at, number) })
		}
	}
}

// sleepUntil waits until a time and returns true, or false if ctx is cancelled first.
func sleepUntil(ctx context.Context, t time.Time) bool {
	wait := time.Until(t)
	if wait <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// begin counts a request that is due and reports whether it may be sent.
func (r *run) begin(at time.Duration) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.progress.InFlight >= r.plan.MaxInFlight {
		r.recorder.unsent(at)
		return false
	}
	r.progress.InFlight++
	r.progress.Sent++
	r.recorder.sent(at, time.Since(r.start)-at)
	return true
}

func (r *run) send(ctx context.Context, at time.Duration, n int) {
	ctx, cancel := context.WithTimeout(ctx, r.plan.Timeout)
	defer cancel()
	a := r.sender.Send(ctx, n)
	end := time.Since(r.start)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.progress.InFlight--
	if !a.OK {
		r.progress.Failed++
	}
	first := time.Duration(0)
	if !a.First.IsZero() {
		first = a.First.Sub(r.start)
	}
	r.recorder.answered(at, first, end, a)
}

// reportProgress calls report once a second until the returned function is called.
func (r *run) reportProgress(report func(Progress)) (stop func()) {
	if report == nil {
		return func() {}
	}
	done := make(chan struct{})
	var wait sync.WaitGroup
	wait.Go(func() {
		ticker := time.NewTicker(time.Second)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				r.mu.Lock()
				p := r.progress
				r.mu.Unlock()
				p.Elapsed = time.Since(r.start)
				report(p)
			case <-done:
				return
			}
		}
	})
	return func() { close(done); wait.Wait() }
}
