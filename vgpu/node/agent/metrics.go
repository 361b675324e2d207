package agent

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/node/grant"
	"github.com/gshare-dev/gshare/vgpu/watchdog"
)

// metrics are what the agent counts. Labels are bounded: reasons are those of
// package grant, kinds those of package watchdog, slices those of the node, containers those that hold a share.
type metrics struct {
	agent    *Agent
	starts   *prometheus.CounterVec
	duration prometheus.Histogram
	failures prometheus.Counter
	unseen   prometheus.Counter
	ends     *prometheus.CounterVec

	registered atomic.Bool
	open       atomic.Bool  // the API server knows that the node takes pods
	dmem       atomic.Bool  // the driver can limit memory
	lookedAt   atomic.Int64 // when processes were listed last, in Unix seconds; 0: never
}

func newMetrics(a *Agent) *metrics {
	return &metrics{
		agent: a,
		starts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "gshare_node_starts_total", Help: "Containers that were about to start, by what became of their share.",
		}, []string{"result"}),
		duration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "gshare_node_start_seconds", Help: "How long the kubelet waited for the share of a container.",
			Buckets: []float64{.001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5, 10, 25},
		}),
		failures: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "gshare_node_publish_failures_total", Help: "Times that the API server could not be told what the node has.",
		}),
		unseen: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "gshare_node_watch_failures_total", Help: "Looks at the processes on the devices that the driver did not answer, or not fully.",
		}),
		ends: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "gshare_node_strangers_ended_total", Help: "Processes that were ended because they should not be there.",
		}, []string{"kind"}),
	}
}

// started counts one answer to the kubelet.
func (m *metrics) started(err error, took time.Duration) {
	result := "granted"
	var refusal *grant.Refusal
	if errors.As(err, &refusal) {
		result = string(refusal.Reason)
	} else if err != nil {
		result = "error"
	}
	m.starts.WithLabelValues(result).Inc()
	m.duration.Observe(took.Seconds())
}

// published counts one answer of the API server to what the node has, and why it takes no pods.
func (m *metrics) published(err error, why kube.Reason) {
	if err != nil {
		m.failures.Inc()
		return
	}
	m.open.Store(why == "")
}

func (m *metrics) looked(err error) {
	if err != nil {
		m.unseen.Inc()
		return
	}
	m.lookedAt.Store(time.Now().Unix())
}

var (
	lookedDesc = prometheus.NewDesc("gshare_node_watch_timestamp_seconds",
		"When the processes on the devices were listed last; 0: not yet.", nil, nil)
	strangersDesc  = prometheus.NewDesc("gshare_node_strangers", "Processes that should not be there.", []string{"slice", "kind"}, nil)
	usedDesc       = prometheus.NewDesc("gshare_node_slice_used", "1 while others use a slice without a share.", []string{"slice"}, nil)
	grantsDesc     = prometheus.NewDesc("gshare_node_grants", "Containers that hold a share.", nil, nil)
	dmemDesc       = prometheus.NewDesc("gshare_node_dmem", "1 where the driver itself can limit the device memory of containers.", nil, nil)
	registeredDesc = prometheus.NewDesc("gshare_node_registered", "1 while the kubelet watches the plugin.", nil, nil)
	grantDesc      = prometheus.NewDesc("gshare_node_grant_info", "Whose the containers of the token server are.", grantLabels, nil)
	healthyDesc    = prometheus.NewDesc("gshare_node_slice_healthy", "1 while a slice can be used.", []string{"slice"}, nil)
	openDesc       = prometheus.NewDesc("gshare_node_slice_open", "1 while a slice takes new pods.", []string{"slice"}, nil)
	closedDesc     = prometheus.NewDesc("gshare_node_slice_closed", "1 while a slice takes no new pods for a reason of its own. Programs know it by its uuid.",
		[]string{"slice", "uuid", "reason"}, nil)
	promisedDesc = prometheus.NewDesc("gshare_node_slice_memory_promised_bytes", "Device memory that is granted.", []string{"slice"}, nil)
)

// Describe implements prometheus.Collector.
func (m *metrics) Describe(out chan<- *prometheus.Desc) { prometheus.DescribeByCollect(m, out) }

// Collect implements prometheus.Collector.
func (m *metrics) Collect(out chan<- prometheus.Metric) {
	m.starts.Collect(out)
	m.duration.Collect(out)
	m.failures.Collect(out)
	m.unseen.Collect(out)
	m.ends.Collect(out)
	out <- gauge(lookedDesc, float64(m.lookedAt.Load()))
	out <- gauge(registeredDesc, number(m.registered.Load()))
	out <- gauge(dmemDesc, number(m.dmem.Load()))
	open := m.open.Load()
	a := m.agent
	a.mu.Lock()
	defer a.mu.Unlock()
	grants := a.book.All()
	out <- gauge(grantsDesc, float64(len(grants)))
	collectShares(out, grants, a.inventory.Slices())
	for _, g := range grants {
		out <- gauge(grantDesc, 1, g.ID(), g.Namespace, g.Name, g.Container)
	}
	for _, s := range a.inventory.Slices() {
		out <- gauge(healthyDesc, number(s.Fault == ""), s.ID)
		out <- gauge(openDesc, number(s.Healthy && open), s.ID)
		if s.Reason != "" {
			out <- gauge(closedDesc, 1, s.ID, a.uuid(s.ID), string(s.Reason))
		}
		out <- gauge(promisedDesc, float64(a.book.Promised(s.ID)), s.ID)
		out <- gauge(usedDesc, number(s.Used != ""), s.ID)
		for _, kind := range watchdog.Kinds {
			out <- gauge(strangersDesc, float64(a.strangers(s.ID, kind)), s.ID, string(kind))
		}
	}
}

// strangers counts what was found on a slice. The caller holds the lock.
func (a *Agent) strangers(slice string, kind watchdog.Kind) (n int) {
	for _, f := range a.found {
		if f.Slice == slice && f.Kind == kind {
			n++
		}
	}
	return n
}

func gauge(d *prometheus.Desc, value float64, labels ...string) prometheus.Metric {
	return prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
}

func number(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}
