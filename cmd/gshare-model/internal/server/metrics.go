package server

import (
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gshare-dev/gshare/cmd/gshare-model/internal/model"
)

// metrics are the server's own figures.
type metrics struct {
	registry *prometheus.Registry
	requests *prometheus.CounterVec
	rows     prometheus.Histogram
	seconds  prometheus.Histogram
	running  prometheus.Gauge
	tokens   prometheus.Counter
}

func newMetrics(e *model.Engine) metrics {
	m := metrics{
		registry: prometheus.NewRegistry(),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "gshare_model_requests_total", Help: "Requests by the HTTP status of their answer.",
		}, []string{"code"}),
		rows: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "gshare_model_batch_rows", Help: "Rows of the batches that were run.", Buckets: prometheus.ExponentialBuckets(1, 2, 11),
		}),
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "gshare_model_batch_seconds", Help: "Time of a batch, with its wait for the device.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 15),
		}),
		running: prometheus.NewGauge(prometheus.GaugeOpts{Name: "gshare_model_batches", Help: "Batches that run or wait for the device."}),
		tokens:  prometheus.NewCounter(prometheus.CounterOpts{Name: "gshare_model_tokens_total", Help: "Tokens that were generated."}),
	}
	loaded := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "gshare_model_loaded_bytes", Help: "Size of the weights that are on the device.",
	}, func() float64 {
		if e.Loaded() {
			return float64(e.Table.Weights)
		}
		return 0
	})
	m.registry.MustRegister(m.requests, m.rows, m.seconds, m.running, m.tokens, loaded)
	return m
}

// begin counts a batch as waiting for the device, and returns a function to call when it has ended.
func (m *metrics) begin(rows int) (done func(error)) {
	start := time.Now()
	m.running.Inc()
	return func(err error) {
		m.running.Dec()
		if err == nil {
			m.rows.Observe(float64(rows))
			m.seconds.Observe(time.Since(start).Seconds())
		}
	}
}

// count counts the answers of a handler by their status.
func (m *metrics) count(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		recorder := &statusRecorder{ResponseWriter: w, status: http.StatusOK}
		defer func() { m.requests.WithLabelValues(strconv.Itoa(recorder.status)).Inc() }()
		h.ServeHTTP(recorder, r)
	})
}

// statusRecorder is a ResponseWriter that records the status code.
type statusRecorder struct {
	http.ResponseWriter
	status int
}

func (r *statusRecorder) WriteHeader(status int) {
	r.status = status
	r.ResponseWriter.WriteHeader(status)
}

// Flush implements http.Flusher, which gRPC requires of a ResponseWriter.
func (r *statusRecorder) Flush() { _ = http.NewResponseController(r.ResponseWriter).Flush() }

func (r *statusRecorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }
