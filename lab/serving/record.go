package serving

import (
	"slices"
	"time"

	"github.com/gshare-dev/gshare/serving/rules/arrival"
)

// Result holds the counters of one simulation run. A request either meets its SLO or is a violation: refused, late, or unanswered at the
// end.
type Result struct {
	Requests   int
	Violations int
	Refused    int // violations that were answered at once with a refusal, because they were predicted to be late
	Completed  int // answered, in time or late, before the trace ended

	ColdStarts int // instances loaded from storage
	WarmStarts int // instances loaded from host memory

	P50, P95, P99 time.Duration // from arrival to answer, of the answered requests
	Mean          LatencyParts  // of the same requests; on MIG instances only

	GPUSeconds    float64 // time of whole GPUs that was reserved, or used in excess of the reservation
	UsedSeconds   float64 // the part of GPUSeconds during which SMs worked
	MIGSeconds    float64 // working time of MIG instances, summed over all of them
	MemorySeconds float64 // GB of device memory held, times seconds
	Cost          float64 // in units of the price book's currency
}

// LatencyParts splits the latency of requests into its parts.
type LatencyParts struct {
	Queue     time.Duration // waiting, including for an instance to start
	Load      time.Duration // loading the model onto a slice that functions share in turn
	Transfer  time.Duration // from one stage to the next
	Execution time.Duration
}

// ViolationPercent returns the percentage of requests that missed their SLO.
func (r *Result) ViolationPercent() float64 {
	return 100 * float64(r.Violations) / float64(max(r.Requests, 1))
}

// record collects the outcomes of all requests of a run.
type record struct {
	arrivals  []arrival.Arrival
	slo       []time.Duration // by function
	until     time.Duration
	latencies []time.Duration
	parts     LatencyParts // sums
	result    Result
}

func newRecord(in *Input) *record {
	r := &record{arrivals: in.Arrivals, until: in.Until}
	r.result.Requests = len(in.Arrivals)
	for i := range in.Functions {
		r.slo = append(r.slo, in.Functions[i].SLO)
	}
	return r
}

func (r *record) arrived(request int32) time.Duration { return r.arrivals[request].At }

func (r *record) deadline(request int32) time.Duration {
	a := &r.arrivals[request]
	return a.At + r.slo[a.Function]
}

func (r *record) answer(request int32, now time.Duration) {
	r.latencies = append(r.latencies, now-r.arrived(request))
	if now > r.deadline(request) {
		r.result.Violations++
	}
	if now <= r.until {
		r.result.Completed++
	}
}

// split adds the parts of the latency of a request that is answered now. Whatever is not load, transfer or execution counts as waiting.
func (r *record) split(request int32, now, load, transfer, execution time.Duration) {
	r.parts.Queue += now - r.arrived(request) - load - transfer - execution
	r.parts.Load += load
	r.parts.Transfer += transfer
	r.parts.Execution += execution
}

func (r *record) refuse(request int32) {
	r.result.Refused++
	r.result.Violations++
}

// finish counts unanswered requests as violations and returns the result with its latency quantiles.
func (r *record) finish() Result {
	r.result.Violations += r.result.Requests - r.result.Refused - len(r.latencies)
	slices.Sort(r.latencies)
	if n := time.Duration(len(r.latencies)); n > 0 {
		r.result.Mean = LatencyParts{r.parts.Queue / n, r.parts.Load / n, r.parts.Transfer / n, r.parts.Execution / n}
	}
	r.result.P50, r.result.P95, r.result.P99 = r.quantile(0.5), r.quantile(0.95), r.quantile(0.99)
	return r.result
}

func (r *record) quantile(q float64) time.Duration {
	if len(r.latencies) == 0 {
		return 0
	}
	return r.latencies[int(q*float64(len(r.latencies)-1)+0.5)]
}
