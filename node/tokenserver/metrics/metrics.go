// Package metrics exports a token server's state to Prometheus: for each share its quota, its use, and how long its processes wait;
// for the server, sessions and refusals.
//
// A scrape takes one snapshot; nothing is kept between scrapes. The number of series is bounded: only containers and devices in
// service have series, and reasons are a fixed list.
package metrics

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gshare-dev/gshare/node/tokenserver"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// Source provides the state and the counters of a token server.
type Source interface {
	Snapshot() []tokenserver.Status
	Counters() tokenserver.Counters
}

// Collector implements prometheus.Collector for a token server.
type Collector struct{ source Source }

// New returns a Collector that reads from a token server at each scrape.
func New(s Source) Collector { return Collector{s} }

// Describe sends the descriptions of all metrics.
func (Collector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range descriptions {
		out <- d
	}
}

// Collect sends the metrics of one snapshot of the server.
func (c Collector) Collect(out chan<- prometheus.Metric) {
	for _, status := range c.source.Snapshot() {
		for _, v := range status.VGPUs {
			collectVGPU(out, v, v.UUID, status.ID, strconv.Itoa(v.Index))
		}
	}
	counters := c.source.Counters()
	out <- counter(sessions, float64(counters.Sessions))
	out <- counter(reconnects, float64(counters.Reconnects))
	for reason, n := range counters.Refused {
		out <- counter(refused, float64(n), reason.String())
	}
}

func collectVGPU(out chan<- prometheus.Metric, v tokenserver.VGPUStatus, labels ...string) {
	for _, m := range []prometheus.Metric{
		gauge(sm, ratio(v.SMRequest), labels...),
		gauge(quotaRequest, ratio(v.QuotaRequest), labels...),
		gauge(quotaLimit, ratio(v.QuotaLimit), labels...),
		counter(busy, v.Total.Seconds(), labels...),
		gauge(memoryLimit, float64(v.Memory), labels...),
		gauge(memoryUsed, float64(v.Used), labels...),
		gauge(memoryPeak, float64(v.Peak), labels...),
		gauge(processes, float64(len(v.Processes)), labels...),
		gauge(selfPaced, float64(v.SelfPaced), labels...),
		gauge(leased, float64(v.LeasedSessions), labels...),
		counter(tokens, float64(v.Tokens), labels...),
		counter(stalls, float64(v.Waits.Stalls), labels...),
		counter(overrun, v.Overruns.Caused.Seconds(), labels...),
		counter(delayed, v.Overruns.Suffered.Seconds(), labels...),
		gauge(debt, v.Overruns.Debt.Seconds(), labels...),
		prometheus.MustNewConstHistogram(wait, v.Waits.Count, v.Waits.Sum.Seconds(), cumulativeBuckets(v.Waits), labels...),
	} {
		out <- m
	}
}

// cumulativeBuckets returns the buckets of a histogram as Prometheus expects them: counts of all waits up to each bound, in seconds.
func cumulativeBuckets(w tokenserver.Waits) map[float64]uint64 {
	sum, list := uint64(0), map[float64]uint64{}
	for i, bound := range tokenserver.WaitBounds {
		sum += w.Buckets[i]
		list[bound.Seconds()] = sum
	}
	return list
}

func ratio(p share.PerMille) float64 { return float64(p) / float64(share.Whole) }

func gauge(d *prometheus.Desc, value float64, labels ...string) prometheus.Metric {
	return prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
}

func counter(d *prometheus.Desc, value float64, labels ...string) prometheus.Metric {
	return prometheus.MustNewConstMetric(d, prometheus.CounterValue, value, labels...)
}

var descriptions []*prometheus.Desc

func describe(name, help string, labels ...string) *prometheus.Desc {
	d := prometheus.NewDesc(name, help, labels, nil)
	descriptions = append(descriptions, d)
	return d
}

// describeShare describes a metric with one series per vGPU of each container.
func describeShare(name, help string) *prometheus.Desc {
	return describe("gshare_share_"+name, help, "device", "container", "vgpu")
}

// Metrics of a share. The rate of busy seconds should be at least the quota request while its processes have work, and at most the
// quota limit.
var (
	sm           = describeShare("sm_ratio", "Fraction of the device's SMs.")
	quotaRequest = describeShare("quota_request_ratio", "Guaranteed fraction of the time.")
	quotaLimit   = describeShare("quota_limit_ratio", "Largest fraction of the time, if others leave it unused.")
	busy         = describeShare("busy_seconds_total", "Device time reported by the processes.")
	memoryLimit  = describeShare("memory_limit_bytes", "Limit of the device memory that the processes hold together.")
	memoryUsed   = describeShare("memory_used_bytes", "Device memory in use, as reported by the processes.")
	memoryPeak   = describeShare("memory_peak_bytes", "Most device memory in use since the agent has started, as reported by the processes.")
	processes    = describeShare("processes", "Processes with a session.")
	selfPaced    = describeShare("self_paced_processes", "Processes that have a session and yet do not follow the server, but pace themselves.")
	leased       = describeShare("leased_sessions", "Sessions of an earlier server whose processes may still run on their lease.")
	tokens       = describeShare("tokens_total", "Granted tokens.")
	wait         = describeShare("token_wait_seconds", "Time that processes waited for a token.")
	stalls       = describeShare("stalls_total", "Waits for a token longer than a window.")
	overrun      = describeShare("overrun_seconds_total", "Time beyond its tokens for which its kernels kept others from their SMs.")
	delayed      = describeShare("delayed_seconds_total", "Time of its own turns in which kernels of others kept it from its SMs.")
	debt         = describeShare("debt_seconds", "Device time used beyond its tokens that it has not repaid yet.")
)

// Counters of the server since its start, given by process_start_time_seconds.
var (
	sessions   = describe("gshare_sessions_total", "Opened sessions.")
	reconnects = describe("gshare_session_reconnects_total", "Sessions of processes that had an earlier session.")
	refused    = describe("gshare_refused_total", "Connections that were refused or closed by the server.", "reason")
)
