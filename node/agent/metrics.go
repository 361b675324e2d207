package agent

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gshare-dev/gshare/node/grant"
	"github.com/gshare-dev/gshare/node/inventory"
	config "github.com/gshare-dev/gshare/vgpu/api/config/node"
	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/share"
	"github.com/gshare-dev/gshare/vgpu/watchdog"
)

// metrics holds the agent's Prometheus counters and the state of some gauges. The sets of label values are bounded: refusal reasons, kinds
// of violations, slices of the node, and containers with a share.
type metrics struct {
	starts       *prometheus.CounterVec
	duration     prometheus.Histogram
	failures     prometheus.Counter // failed publications
	listFailures prometheus.Counter // failed lists of processes
	kills        *prometheus.CounterVec
	drains       *prometheus.CounterVec
	killed       *prometheus.CounterVec

	registered atomic.Int32 // 1 while the kubelet watches the agent's own plugin
	proxies    atomic.Int32 // proxies that the kubelet watches
	open       atomic.Bool  // the API server has stored that the node takes pods
	dmem       atomic.Bool  // the driver can limit memory
	listedAt   atomic.Int64 // when processes were listed last, in Unix seconds; 0: never
}

func newMetrics() *metrics {
	return &metrics{
		starts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "gshare_node_starts_total", Help: "Container starts, by what became of the container's share.",
		}, []string{"result"}),
		duration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "gshare_node_start_seconds", Help: "How long the kubelet waited for the share of a container.",
			Buckets: []float64{.001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5, 10, 25},
		}),
		failures: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "gshare_node_publish_failures_total", Help: "Failed publications of the node's inventory and enforcement statuses.",
		}),
		listFailures: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "gshare_node_watch_failures_total", Help: "Failed or incomplete lists of the processes on the devices.",
		}),
		kills: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "gshare_node_unmanaged_processes_ended_total", Help: "Processes that were killed because they used a slice without a share.",
		}, []string{"kind"}),
		drains: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "gshare_node_drains_total", Help: "Attempts to end the CUDA work of a container before it is killed: by its preStop hook, or when its grace period ends.",
		}, []string{"when", "result"}),
		killed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "gshare_node_killed_undrained_total", Help: "Containers on shared slices that were killed before their CUDA work was ended, which may harm the others there.",
		}, []string{"by"}),
	}
}

// The values of the label when of the drains.
const (
	beforeStop  = "before_stop"
	atEndOfTime = "end_of_grace_period"
)

// countDrain counts one drain of a container by its result.
func (m *metrics) countDrain(when string, err error) {
	result := "ended"
	if err != nil {
		result = "failed"
	}
	m.drains.WithLabelValues(when, result).Inc()
}

// isWatched reports whether the kubelet watches the agent's plugin or a proxy.
func (m *metrics) isWatched() bool { return m.registered.Load()+m.proxies.Load() > 0 }

// countStart counts one container start by its result (granted, the refusal's reason, or error), and observes how long it took.
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

// countList counts a failed listing of GPU processes, or stores the time of a successful one.
func (m *metrics) countList(err error) {
	if err != nil {
		m.listFailures.Inc()
		return
	}
	m.listedAt.Store(time.Now().Unix())
}

var (
	listedDesc = prometheus.NewDesc("gshare_node_watch_timestamp_seconds",
		"When the processes on the devices were listed last; 0: not yet. Absent with unmanagedProcesses: ignore.", nil, nil)
	unmanagedDesc  = prometheus.NewDesc("gshare_node_unmanaged_processes", "Processes that violate the shares of a slice.", []string{"slice", "kind"}, nil)
	usedDesc       = prometheus.NewDesc("gshare_node_slice_used", "1 while others use a slice without a share.", []string{"slice"}, nil)
	grantsDesc     = prometheus.NewDesc("gshare_node_grants", "Containers that hold a share.", nil, nil)
	dmemDesc       = prometheus.NewDesc("gshare_node_dmem", "1 where the driver itself can limit the device memory of containers.", nil, nil)
	registeredDesc = prometheus.NewDesc("gshare_node_registered", "1 while the kubelet watches the agent's plugin or a proxy.", nil, nil)
	proxiesDesc    = prometheus.NewDesc("gshare_node_proxies", "Proxies that the kubelet watches and that are connected to the agent.", nil, nil)
	grantDesc      = prometheus.NewDesc("gshare_node_grant_info", "The pod and container of each container ID of the token server.", grantLabels, nil)
	healthyDesc    = prometheus.NewDesc("gshare_node_slice_healthy", "1 while a slice can be used.", []string{"slice"}, nil)
	openDesc       = prometheus.NewDesc("gshare_node_slice_open", "1 while a slice takes new pods.", []string{"slice"}, nil)
	closedDesc     = prometheus.NewDesc("gshare_node_slice_closed", "1 while a slice takes no new pods for the given reason. uuid is the UUID by which CUDA programs see the slice.",
		[]string{"slice", "uuid", "reason"}, nil)
	promisedDesc = prometheus.NewDesc("gshare_node_slice_memory_promised_bytes", "Device memory that is granted.", []string{"slice"}, nil)
)

// collector collects the Prometheus metrics of an agent.
type collector struct{ *Agent }

func (c collector) Describe(out chan<- *prometheus.Desc) { prometheus.DescribeByCollect(c, out) }

func (c collector) Collect(out chan<- prometheus.Metric) {
	m := c.metrics
	for _, counter := range []prometheus.Collector{m.starts, m.duration, m.failures, m.listFailures, m.kills, m.drains, m.killed} {
		counter.Collect(out)
	}
	if c.Config.Kubernetes.UnmanagedProcesses != config.IgnoreUnmanaged {
		out <- gauge(listedDesc, float64(m.listedAt.Load()))
	}
	out <- gauge(registeredDesc, number(m.isWatched()))
	out <- gauge(proxiesDesc, float64(m.proxies.Load()))
	out <- gauge(dmemDesc, number(m.dmem.Load()))
	grants, slices, found := c.granter.grants.all(), c.devices.currentInventory().Slices(), c.guard.findings()
	out <- gauge(grantsDesc, float64(len(grants)))
	collectShares(out, grants, slices)
	collectMemory(out, grants, c.guard.audit.lastUses())
	for _, s := range slices {
		c.collectSlice(out, s)
		for _, kind := range watchdog.Kinds {
			out <- gauge(unmanagedDesc, float64(countFindings(found, s.ID, kind)), s.ID, string(kind))
		}
	}
}

// collectSlice sends the gauges of one slice: health, whether it takes new pods, and the granted memory.
func (c collector) collectSlice(out chan<- prometheus.Metric, s inventory.Slice) {
	out <- gauge(healthyDesc, number(s.Fault == ""), s.ID)
	out <- gauge(openDesc, number(s.Healthy && c.metrics.open.Load()), s.ID)
	if s.Reason != "" {
		out <- gauge(closedDesc, 1, s.ID, c.slices.uuidOf(s.ID), string(s.Reason))
	}
	out <- gauge(promisedDesc, float64(c.granter.grants.grantedMemory(s.ID)), s.ID)
	out <- gauge(usedDesc, number(s.Used != ""), s.ID)
}

func countFindings(found []watchdog.Finding, slice string, kind watchdog.Kind) (n int) {
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

// Metrics of capacity and of grants, for measuring density and for charging namespaces. An SM-time of 1 is all SMs of a slice all the time.
var (
	sliceDesc        = prometheus.NewDesc("gshare_node_slice_info", "The slices of the node.", []string{"slice", "model", "profile"}, nil)
	sliceMemoryDesc  = prometheus.NewDesc("gshare_node_slice_memory_bytes", "Device memory that can be granted.", []string{"slice"}, nil)
	sliceSMTimeDesc  = prometheus.NewDesc("gshare_node_slice_sm_time_promised_ratio", "Fraction of the slice's SMs times time that is granted.", []string{"slice"}, nil)
	sliceSharesDesc  = prometheus.NewDesc("gshare_node_slice_shares", "Shares that are granted on a slice.", []string{"slice"}, nil)
	grantSMTimeDesc  = prometheus.NewDesc("gshare_node_grant_sm_time_ratio", "SMs times time of slices that a container has reserved.", grantLabels, nil)
	grantMemoryDesc  = prometheus.NewDesc("gshare_node_grant_memory_bytes", "Device memory that a container has reserved.", grantLabels, nil)
	grantDriverDesc  = prometheus.NewDesc("gshare_node_grant_driver_memory_bytes", "Device memory of a container's processes as the driver counts it, with their contexts.", grantLabels, nil)
	grantExcessDesc  = prometheus.NewDesc("gshare_node_grant_uncounted_memory_bytes", "Device memory of a container's processes beyond what the hook counts and the allowance for the contexts of each process, 256 MiB to 1 GiB by its SMs.", grantLabels, nil)
	grantLabels      = []string{"container", "namespace", "pod", "name"}
	wholeSMTimeSlice = float64(share.Whole) * float64(share.Whole)
)

// collectShares sends the gauges of capacity and granted shares, by slice and by container.
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

// collectMemory sends the gauges of the memory of each container with a shared slice, as the driver counts it.
func collectMemory(out chan<- prometheus.Metric, grants []grant.Grant, uses []watchdog.MemoryUse) {
	for _, g := range grants {
		driver, uncounted, observed := share.Bytes(0), share.Bytes(0), false
		for _, u := range uses {
			if u.Pod == string(g.UID) && u.Container == g.Container {
				driver, uncounted, observed = driver+u.DriverTotal(), uncounted+u.Uncounted(), true
			}
		}
		if observed {
			out <- gauge(grantDriverDesc, float64(driver), g.ID(), g.Namespace, g.Name, g.Container)
			out <- gauge(grantExcessDesc, float64(uncounted), g.ID(), g.Namespace, g.Name, g.Container)
		}
	}
}

// smTimeOf returns the SM-time that a vGPU has reserved (SMs times quota), where 1 is a whole slice.
func smTimeOf(v kube.PlacedVGPU) float64 {
	return float64(v.Share.SMRequest) * float64(v.Share.QuotaRequest) / wholeSMTimeSlice
}
