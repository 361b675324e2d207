package load

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// ResultVersion is the version of the JSON form of Result. It rises when a field changes its meaning or is removed.
const ResultVersion = 1

// Result is the outcome of a run. Requests of the warm-up are not counted. Times are in milliseconds, rates in requests per second.
type Result struct {
	Version     int     `json:"version"`
	Seconds     float64 `json:"seconds"`               // duration of the measurement, without the warm-up
	Interrupted bool    `json:"interrupted,omitempty"` // the run ended before the plan did

	Scheduled int            `json:"scheduled"` // requests that were due: the sum of Answered and Failures
	Answered  int            `json:"answered"`
	Failures  map[string]int `json:"failures,omitempty"` // by reason; Unsent for requests that MaxInFlight held back

	OfferedRate  float64 `json:"offeredRate"`
	AnsweredRate float64 `json:"answeredRate"`

	Latency Latencies `json:"latencyMs"` // of answered requests, from when they were due
	// FirstToken is the latency of the first token of streamed answers, TokenGap the mean time between the tokens of each.
	FirstToken *Latencies `json:"firstTokenMs,omitempty"`
	TokenGap   *Latencies `json:"tokenGapMs,omitempty"`

	SLO *Attainment `json:"slo,omitempty"`

	Lateness   Latencies `json:"latenessMs"` // lateness of the client: from when a request was due until it was sent
	ClientLate bool      `json:"clientLate"` // the client was too slow for the figures to be those of the server

	Intervals []Interval `json:"intervals,omitempty"`
}

// Unsent is the reason in Result.Failures for requests that were not sent because Plan.MaxInFlight requests were in flight.
const Unsent = "not sent: too many in flight"

// Attainment tells how many of the scheduled requests were answered within the objective. Failed requests count as not answered.
type Attainment struct {
	Milliseconds float64 `json:"ms"`
	InTime       int     `json:"inTime"`
	Ratio        float64 `json:"ratio"`   // InTime / Scheduled
	Goodput      float64 `json:"goodput"` // requests per second that were answered in time
}

// Latencies are quantiles of a distribution, in milliseconds.
type Latencies struct {
	Mean float64 `json:"mean"`
	P50  float64 `json:"p50"`
	P90  float64 `json:"p90"`
	P95  float64 `json:"p95"`
	P99  float64 `json:"p99"`
	P999 float64 `json:"p999"`
	Max  float64 `json:"max"`
}

// Interval is a part of a run. Requests belong to it by the times at which they were due.
type Interval struct {
	From      float64 `json:"from"` // seconds since the start, warm-up included
	Scheduled int     `json:"scheduled"`
	Answered  int     `json:"answered"`
	P50       float64 `json:"p50Ms"`
	P99       float64 `json:"p99Ms"`
}

// maxIntervals bounds the number of intervals in which a run is reported. Each lasts at least a second.
const maxIntervals = 240

// recorder collects the measurements of a run.
type recorder struct {
	plan                                    Plan
	scheduled, answeredCount, inTime        int
	failures                                map[string]int
	latency, lateness, firstToken, perToken *hdrhistogram.Histogram
	interval                                time.Duration
	intervals                               []intervalCount
}

type intervalCount struct {
	scheduled int
	latency   *hdrhistogram.Histogram // created with the first answer
}

func newRecorder(p Plan) *recorder {
	interval := max(time.Second, (p.Length+maxIntervals-1)/maxIntervals)
	return &recorder{
		plan: p, failures: map[string]int{},
		latency: newHistogram(3), lateness: newHistogram(3), firstToken: newHistogram(3), perToken: newHistogram(3),
		interval: interval, intervals: make([]intervalCount, (p.Length+interval-1)/interval),
	}
}

// newHistogram returns a histogram of microseconds.
func newHistogram(digits int) *hdrhistogram.Histogram {
	return hdrhistogram.New(1, maxLatency.Microseconds(), digits)
}

// record adds a time to a histogram, which holds 1 us to maxLatency.
func record(h *hdrhistogram.Histogram, d time.Duration) {
	_ = h.RecordValue(min(max(d.Microseconds(), 1), maxLatency.Microseconds())) // never fails within the bounds
}

// due counts a request and reports whether it is measured.
func (c *recorder) due(at time.Duration) bool {
	if c.intervalOf(at) != nil {
		c.intervalOf(at).scheduled++
	}
	if at < c.plan.WarmUp {
		return false
	}
	c.scheduled++
	return true
}

func (c *recorder) intervalOf(at time.Duration) *intervalCount {
	if n := int(at / c.interval); n < len(c.intervals) {
		return &c.intervals[n]
	}
	return nil
}

func (c *recorder) unsent(at time.Duration) {
	if c.due(at) {
		c.failures[Unsent]++
	}
}

func (c *recorder) sent(at, late time.Duration) {
	if c.due(at) {
		record(c.lateness, late)
	}
}

// answered records the end of a request that was due at a time, with the time of its first token if the answer was streamed.
func (c *recorder) answered(at, first, end time.Duration, a Answer) {
	took := end - at
	if i := c.intervalOf(at); a.OK && i != nil {
		if i.latency == nil {
			i.latency = newHistogram(2)
		}
		record(i.latency, took)
	}
	switch {
	case at < c.plan.WarmUp:
		return
	case !a.OK:
		c.failures[a.Status]++
		return
	}
	c.answeredCount++
	record(c.latency, took)
	bound := took
	if first > 0 {
		bound = first - at // the objective of a streamed answer applies to its first token
		record(c.firstToken, bound)
		if a.Tokens > 1 {
			record(c.perToken, (end-first)/time.Duration(a.Tokens-1))
		}
	}
	if bound <= c.plan.SLO {
		c.inTime++
	}
}

func (c *recorder) result(took time.Duration, interrupted bool) *Result {
	seconds := c.plan.Length - c.plan.WarmUp
	if interrupted {
		seconds = max(min(took, c.plan.Length)-c.plan.WarmUp, time.Millisecond)
	}
	r := &Result{
		Version: ResultVersion, Seconds: seconds.Seconds(), Interrupted: interrupted,
		Scheduled: c.scheduled, Answered: c.answeredCount, Failures: c.failures,
		OfferedRate: float64(c.scheduled) / seconds.Seconds(), AnsweredRate: float64(c.answeredCount) / seconds.Seconds(),
		Latency: quantiles(c.latency), Lateness: quantiles(c.lateness),
	}
	if c.firstToken.TotalCount() > 0 {
		first, gap := quantiles(c.firstToken), quantiles(c.perToken)
		r.FirstToken, r.TokenGap = &first, &gap
	}
	if c.plan.SLO > 0 {
		r.SLO = &Attainment{
			Milliseconds: milliseconds(c.plan.SLO), InTime: c.inTime,
			Ratio: float64(c.inTime) / float64(max(c.scheduled, 1)), Goodput: float64(c.inTime) / seconds.Seconds(),
		}
	}
	r.ClientLate = r.Lateness.P99 > milliseconds(c.plan.LatenessBound()) || c.failures[Unsent] > 0
	for n, i := range c.intervals {
		from := time.Duration(n) * c.interval
		if interrupted && from > took {
			break
		}
		part := Interval{From: from.Seconds(), Scheduled: i.scheduled}
		if i.latency != nil {
			part.Answered = int(i.latency.TotalCount())
			part.P50, part.P99 = float64(i.latency.ValueAtQuantile(50))/1000, float64(i.latency.ValueAtQuantile(99))/1000
		}
		r.Intervals = append(r.Intervals, part)
	}
	return r
}

// LatenessBound is the p99 of the client's own lateness above which its figures do not count as those of the server: a hundredth of the SLO, at least 1 ms.
func (p *Plan) LatenessBound() time.Duration { return max(p.SLO/100, time.Millisecond) }

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func quantiles(h *hdrhistogram.Histogram) Latencies {
	at := func(q float64) float64 { return float64(h.ValueAtQuantile(q)) / 1000 }
	return Latencies{Mean: h.Mean() / 1000, P50: at(50), P90: at(90), P95: at(95), P99: at(99), P999: at(99.9), Max: float64(h.Max()) / 1000}
}

// Failed returns the number of scheduled requests without a good answer.
func (r *Result) Failed() int { return r.Scheduled - r.Answered }

// Reasons returns the reasons of failures, the most frequent first.
func (r *Result) Reasons() []string {
	return slices.SortedFunc(maps.Keys(r.Failures), func(a, b string) int {
		return cmp.Or(cmp.Compare(r.Failures[b], r.Failures[a]), cmp.Compare(a, b))
	})
}
