package metrics

import "github.com/prometheus/client_golang/prometheus"

var descriptions []*prometheus.Desc

func describe(name, help string, labels ...string) *prometheus.Desc {
	d := prometheus.NewDesc(name, help, labels, nil)
	descriptions = append(descriptions, d)
	return d
}

// ofShare describes what there is for each vGPU of each container.
func ofShare(name, help string) *prometheus.Desc {
	return describe("gshare_share_"+name, help, "device", "container", "vgpu")
}

// The target of a share, and what its processes report to have had of it: the rate of busy seconds is to be at least the
// quota request while they have work, and at most the quota limit.
var (
	sm           = ofShare("sm_ratio", "Part of the device's SMs.")
	quotaRequest = ofShare("quota_request_ratio", "Part of the time that is guaranteed.")
	quotaLimit   = ofShare("quota_limit_ratio", "Part of the time that may be used while others leave it.")
	busy         = ofShare("busy_seconds_total", "Device time, as the processes report it.")
	memoryLimit  = ofShare("memory_limit_bytes", "Device memory that the processes may hold together.")
	memoryUsed   = ofShare("memory_used_bytes", "Device memory that they hold, as they report it.")
	processes    = ofShare("processes", "Processes with a session.")
	awaited      = ofShare("sessions_awaited", "Sessions of the server before this one that may still be running.")
	tokens       = ofShare("tokens_total", "Tokens that were granted.")
	wait         = ofShare("token_wait_seconds", "How long a process waited for a token.")
	stalls       = ofShare("stalls_total", "Waits for a token that were longer than a window.")
)

// Counts of the server since its start, which process_start_time_seconds tells.
var (
	sessions   = describe("gshare_sessions_total", "Sessions that were opened.")
	reconnects = describe("gshare_session_reconnects_total", "Sessions of processes that had one before.")
	refused    = describe("gshare_refused_total", "Connections that were refused or cut off.", "reason")
)
