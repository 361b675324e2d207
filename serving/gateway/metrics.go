package gateway

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are the Prometheus metrics of all functions.
type metrics struct {
	requests  *prometheus.CounterVec
	refusals  *prometheus.CounterVec
	retries   *prometheus.CounterVec
	forwarded *prometheus.CounterVec
	durations *prometheus.HistogramVec
	waits     *prometheus.HistogramVec
	batches   *prometheus.HistogramVec

	firstTokens, tokenTimes *prometheus.HistogramVec // of streams with the protocol OpenAI
}

var functionLabels = []string{"namespace", "function"}

// latencyBuckets are the buckets for durations of requests, in seconds.
var latencyBuckets = []float64{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60}

func newMetrics(r prometheus.Registerer) *metrics {
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "gshare_gateway_requests_total",
			Help: "Requests by function and status of the answer; 499 for those whose client left."}, append(functionLabels, "code")),
		refusals: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "gshare_gateway_refusals_total",
			Help: "Requests that the gateway refused or gave up, by function, empty if it is not known, and reason."}, append(functionLabels, "reason")),
		retries: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "gshare_gateway_retries_total",
			Help: "Requests that were sent to another replica because the first one failed."}, functionLabels),
		forwarded: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "gshare_gateway_forwarded_total",
			Help: "Requests that another gateway answered, which owns the function and counts them among its requests."}, functionLabels),
		durations: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "gshare_gateway_request_duration_seconds", Buckets: latencyBuckets,
			NativeHistogramBucketFactor: 1.1, Help: "Time from the arrival of a request to the end of its answer."}, functionLabels),
		waits: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "gshare_gateway_queue_duration_seconds", Buckets: latencyBuckets,
			NativeHistogramBucketFactor: 1.1, Help: "Time for which requests waited for a replica."}, functionLabels),
	}
	m.batches = prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "gshare_gateway_batch_requests",
		Buckets: prometheus.ExponentialBuckets(1, 2, 8), Help: "Requests of each batch of a function that has batches."}, functionLabels)
	m.firstTokens = prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "gshare_gateway_time_to_first_token_seconds", Buckets: latencyBuckets,
		NativeHistogramBucketFactor: 1.1, Help: "Time from the arrival of a request to the first token of its answer, for streams with the protocol OpenAI."}, functionLabels)
	m.tokenTimes = prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "gshare_gateway_time_per_output_token_seconds", Buckets: latencyBuckets,
		NativeHistogramBucketFactor: 1.1, Help: "Mean time between the tokens of an answer after the first one, for streams with the protocol OpenAI."}, functionLabels)
	if r != nil {
		r.MustRegister(m.requests, m.refusals, m.retries, m.forwarded, m.durations, m.waits, m.batches, m.firstTokens, m.tokenTimes)
	}
	return m
}

// observe counts the outcome of a request that arrived at the time start and has ended.
func (m *metrics) observe(f FunctionName, start time.Time, o *outcome) {
	m.requests.WithLabelValues(f.Namespace, f.Name, strconv.Itoa(o.status)).Inc()
	m.durations.WithLabelValues(f.Namespace, f.Name).Observe(time.Since(start).Seconds())
	m.waits.WithLabelValues(f.Namespace, f.Name).Observe(o.queued.Seconds())
	if count := o.tokens.count(); count > 0 {
		m.firstTokens.WithLabelValues(f.Namespace, f.Name).Observe(o.tokens.first.Sub(start).Seconds())
		if count > 1 {
			m.tokenTimes.WithLabelValues(f.Namespace, f.Name).Observe(o.tokens.mean().Seconds())
		}
	}
}

func (m *metrics) refused(f FunctionName, reason string) {
	m.refusals.WithLabelValues(f.Namespace, f.Name, reason).Inc()
}

func (m *metrics) retried(f FunctionName) {
	m.retries.WithLabelValues(f.Namespace, f.Name).Inc()
}

func (m *metrics) batched(f FunctionName, n int) {
	m.batches.WithLabelValues(f.Namespace, f.Name).Observe(float64(n))
}

// measure changes the metrics of the function, unless it has been removed: nobody would remove its series once more.
func (f *function) measure(change func(*metrics)) {
	f.count(func(s *statistics) {
		if !s.removed {
			change(f.gateway.metrics)
		}
	})
}

// remove deletes the series of a function.
func (m *metrics) remove(f FunctionName) {
	labels := prometheus.Labels{"namespace": f.Namespace, "function": f.Name}
	m.requests.DeletePartialMatch(labels)
	m.refusals.DeletePartialMatch(labels)
	m.retries.DeletePartialMatch(labels)
	m.forwarded.DeletePartialMatch(labels)
	m.durations.DeletePartialMatch(labels)
	m.waits.DeletePartialMatch(labels)
	m.batches.DeletePartialMatch(labels)
	m.firstTokens.DeletePartialMatch(labels)
	m.tokenTimes.DeletePartialMatch(labels)
}
