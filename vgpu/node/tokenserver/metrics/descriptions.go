package metrics

import "github.com/prometheus/client_golang/prometheus"

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
	processes    = describeShare("processes", "Processes with a session.")
	leased       = describeShare("leased_sessions", "Sessions of an earlier server whose processes may still run on their lease.")
	tokens       = describeShare("tokens_total", "Granted tokens.")
	wait         = describeShare("token_wait_seconds", "Time that processes waited for a token.")
	stalls       = describeShare("stalls_total", "Waits for a token longer than a window.")
)

// Counters of the server since its start, given by process_start_time_seconds.
var (
	sessions   = describe("gshare_sessions_total", "Opened sessions.")
	reconnects = describe("gshare_session_reconnects_total", "Sessions of processes that had an earlier session.")
	refused    = describe("gshare_refused_total", "Connections that were refused or closed by the server.", "reason")
)
