package agent

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/node/grant"
	"github.com/gshare-dev/gshare/vgpu/node/inventory"
	"github.com/gshare-dev/gshare/vgpu/share"
	"github.com/gshare-dev/gshare/vgpu/watchdog"
)

// metrics holds the agent's counters, and collects its gauges. Labels are bounded: reasons are those of package grant, kinds those of
// package watchdog, slices those of the node, containers those that hold a share.
type metrics struct {
	starts       *prometheus.CounterVec
	duration     prometheus.Histogram
	failures     prometheus.Counter // of publications
	listFailures prometheus.Counter // of processes
	kills        *prometheus.CounterVec

	registered atomic.Bool
	open       atomic.Bool  // the API server has stored that the node takes pods
	dmem       atomic.Bool  // the driver can limit memory
	listedAt   atomic.Int64 // when processes were listed last, in Unix seconds; 0: never
}

func newMetrics() *metrics {
	return &metrics{
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
		listFailures: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "gshare_node_watch_failures_total", Help: "Looks at the processes on the devices that the driver did not answer, or not fully.",
		}),
		kills: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "gshare_node_strangers_ended_total", Help: "Processes that were ended because they should not be there.",
		}, []string{"kind"}),
	}
}

// countStart counts one answer to the kubelet about a container that is about to start.
func (m *metrics) countStart(err error, took time.Duration) {
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

// countPublication counts one attempt to publish what the node offers, and why it takes no pods.
func (m *metrics) countPublication(err error, reason kube.Reason) {
	if err != nil {
		m.failures.Inc()
		return
	}
	m.open.Store(reason == "")
}

// countList counts one attempt to list the processes on the devices.
func (m *metrics) countList(err error) {
	if err != nil {
		m.listFailures.Inc()
		return
	}
	m.listedAt.Store(time.Now().Unix())
}

var (
	listedDesc = prometheus.NewDesc("gshare_node_watch_timestamp_seconds",
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

// collector collects the metrics of an agent.
type collector struct{ *Agent }

// Describe implements prometheus.Collector.
func (c collector) Describe(out chan<- *prometheus.Desc) { prometheus.DescribeByCollect(c, out) }

// Collect implements prometheus.Collector.
func (c collector) Collect(out chan<- prometheus.Metric) {
	m := c.metrics
	for _, counter := range []prometheus.Collector{m.starts, m.duration, m.failures, m.listFailures, m.kills} {
		counter.Collect(out)
	}
	out <- gauge(listedDesc, float64(m.listedAt.Load()))
	out <- gauge(registeredDesc, number(m.registered.Load()))
	out <- gauge(dmemDesc, number(m.dmem.Load()))
	grants, slices, found := c.granter.grants.all(), c.devices.current().Slices(), c.guard.findings()
	out <- gauge(grantsDesc, float64(len(grants)))
	collectShares(out, grants, slices)
	for _, s := range slices {
		c.collectSlice(out, s)
		for _, kind := range watchdog.Kinds {
			out <- gauge(strangersDesc, float64(count(found, s.ID, kind)), s.ID, string(kind))
		}
	}
}

// collectSlice collects the state of one slice.
func (c collector) collectSlice(out chan<- prometheus.Metric, s inventory.Slice) {
	out <- gauge(healthyDesc, number(s.Fault == ""), s.ID)
	out <- gauge(openDesc, number(s.Healthy && c.metrics.open.Load()), s.ID)
	if s.Reason != "" {
		out <- gauge(closedDesc, 1, s.ID, c.slices.uuid(s.ID), string(s.Reason))
	}
	out <- gauge(promisedDesc, float64(c.granter.grants.promised(s.ID)), s.ID)
	out <- gauge(usedDesc, number(s.Used != ""), s.ID)
}

// count returns the number of findings of a kind on a slice.
func count(found []watchdog.Finding, slice string, kind watchdog.Kind) (n int) {
	for _, f := range found {
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

// Metrics of capacity and of grants, for measuring density and for charging namespaces. SM-time is in slices: 1 is all SMs of a slice for
// all of the time.
var (
	sliceDesc        = prometheus.NewDesc("gshare_node_slice_info", "The slices of the node.", []string{"slice", "model", "profile"}, nil)
	sliceMemoryDesc  = prometheus.NewDesc("gshare_node_slice_memory_bytes", "Device memory that shares may take together.", []string{"slice"}, nil)
	sliceSMTimeDesc  = prometheus.NewDesc("gshare_node_slice_sm_time_promised_ratio", "Part of the SMs times time that is granted.", []string{"slice"}, nil)
	sliceSharesDesc  = prometheus.NewDesc("gshare_node_slice_shares", "Shares that are granted on a slice.", []string{"slice"}, nil)
	grantSMTimeDesc  = prometheus.NewDesc("gshare_node_grant_sm_time_ratio", "SMs times time of slices that a container has reserved.", grantLabels, nil)
	grantMemoryDesc  = prometheus.NewDesc("gshare_node_grant_memory_bytes", "Device memory that a container has reserved.", grantLabels, nil)
	grantLabels      = []string{"container", "namespace", "pod", "name"}
	wholeSMTimeSlice = float64(share.Whole) * float64(share.Whole)
)

// collectShares collects the capacity of slices, what is granted of it, and to whom.
func collectShares(out chan<- prometheus.Metric, grants []grant.Grant, slices []inventory.Slice) {
	smTime, count := map[string]float64{}, map[string]int{}
	for _, g := range grants {
		sum, memory := 0.0, share.Bytes(0)
		for _, v := range g.VGPUs {
			part := smTimeOf(v)
			smTime[v.Slice] += part
			count[v.Slice]++
			sum, memory = sum+part, memory+v.Share.Memory
		}
		out <- gauge(grantDesc, 1, g.ID(), g.Namespace, g.Name, g.Container)
		out <- gauge(grantSMTimeDesc, sum, g.ID(), g.Namespace, g.Name, g.Container)
		out <- gauge(grantMemoryDesc, float64(memory), g.ID(), g.Namespace, g.Name, g.Container)
	}
	for _, s := range slices {
		out <- gauge(sliceDesc, 1, s.ID, s.Model, s.Profile)
		out <- gauge(sliceMemoryDesc, float64(s.MemoryMiB)*float64(share.MiB), s.ID)
		out <- gauge(sliceSMTimeDesc, smTime[s.ID], s.ID)
		out <- gauge(sliceSharesDesc, float64(count[s.ID]), s.ID)
	}
}

// smTimeOf returns the SM-time that a vGPU has reserved, in slices.
func smTimeOf(v kube.PlacedVGPU) float64 {
	return float64(v.Share.SMRequest) * float64(v.Share.QuotaRequest) / wholeSMTimeSlice
}
