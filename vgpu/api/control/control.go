// Package control is the API of the agent on a machine without Kubernetes, which gshare run, set, ps and top use: HTTP with JSON
// over a Unix socket.
//
// RunsPath takes a RunRequest and answers with one Event a line: any number of Waiting, then Grant or Refused. The calling process,
// identified by the socket, becomes the run: it holds the share until it has exited, with all processes that are connected to the
// token server. A caller that closes the connection while it waits leaves the queue. LimitPath takes a LimitRequest and answers
// with an Event: Refused, or nothing. StatusPath answers with a Status.
package control

import (
	"time"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// The paths of the API. Their first part is the version of the API.
const (
	RunsPath   = "/v1/runs"
	StatusPath = "/v1/status"
	LimitPath  = "/v1/limit"
)

// MaxRequest is the largest size of a request in bytes.
const MaxRequest = 16 << 10

// RunRequest requests a share for the calling process. Amounts are totals of the run, in the units of a pod: percentage points of
// SMs, percent of time, MiB and devices. A nil field was not specified.
type RunRequest struct {
	Name       string `json:"name,omitempty"`
	SM         *int64 `json:"sm,omitempty"`
	Quota      *int64 `json:"quota,omitempty"`
	MemoryMiB  *int64 `json:"memoryMiB,omitempty"`
	VGPUs      *int64 `json:"vgpus,omitempty"`
	SMLimit    *int64 `json:"smLimit,omitempty"`
	QuotaLimit *int64 `json:"quotaLimit,omitempty"`
	Class      string `json:"class,omitempty"`
	Isolation  string `json:"isolation,omitempty"`
	Slice      string `json:"slice,omitempty"` // gpu, mig or a profile, as gshare.dev/slice
	Wait       bool   `json:"wait,omitempty"`  // wait in a queue until the share fits
}

// LimitRequest changes the SM limit of an elastic run, in percent of its device, between its request and its initial limit. Only
// the user of the run and root may send it.
type LimitRequest struct {
	Run     string `json:"run"` // ID, or the name of exactly one run
	SMLimit int64  `json:"smLimit"`
}

// Event is one line of the answer. Exactly one field is set.
type Event struct {
	Waiting *Refusal `json:"waiting,omitempty"`
	Grant   *Grant   `json:"grant,omitempty"`
	Refused *Refusal `json:"refused,omitempty"`
}

// Refusal is the reason for which a share was not admitted.
type Refusal struct {
	Field  string   `json:"field,omitempty"` // the invalid field, in the names of share.FieldError
	Reason string   `json:"reason"`
	Fits   []string `json:"fits,omitempty"` // changes of one field with which the share would fit now
}

// Grant is an admitted run.
type Grant struct {
	ID          string            `json:"id"`
	Dir         string            `json:"dir"` // holds the token server's socket and the policy file
	Environment []string          `json:"environment"`
	Inherit     bool              `json:"inherit"` // the program must inherit the connection, as it cannot be identified among processes of its user
	Enforcement EnforcementStatus `json:"enforcement"`
}

// EnforcementStatus describes by what each part of a share is enforced on this machine, and what is missing.
type EnforcementStatus struct {
	Memory   string   `json:"memory"`
	SMs      string   `json:"sms"`
	Time     string   `json:"time"`
	Identity string   `json:"identity"`
	Missing  []string `json:"missing,omitempty"`
}

// Status is the state of the machine and its runs.
type Status struct {
	Devices []Device `json:"devices"`
	Runs    []Run    `json:"runs"`
}

// Device is one GPU, or one of its MIG instances.
type Device struct {
	UUID      string         `json:"uuid"`
	Profile   string         `json:"profile,omitempty"` // MIG profile, for an instance
	Model     string         `json:"model"`
	SMs       int            `json:"sms"`
	Memory    share.Bytes    `json:"memoryBytes"`
	Promised  share.Bytes    `json:"promisedBytes"` // memory granted to runs
	Time      share.PerMille `json:"timePerMille"`  // SM-time granted to runs
	Class     string         `json:"class,omitempty"`
	Simulated bool           `json:"simulated,omitempty"`
}

// Run is one admitted run.
type Run struct {
	ID          string            `json:"id"`
	Name        string            `json:"name,omitempty"`
	UID         uint32            `json:"uid"`
	PID         int               `json:"pid"` // process that requested the share; it may have exited before its children
	Started     time.Time         `json:"started"`
	Priority    string            `json:"class"`
	Enforcement EnforcementStatus `json:"enforcement"`
	VGPUs       []VGPU            `json:"vgpus"`
}

// VGPU is one vGPU of a run. Measured values are those that its processes report.
type VGPU struct {
	Device     string         `json:"device"`
	SM         share.PerMille `json:"smPerMille"`
	SMLimit    share.PerMille `json:"smLimitPerMille"`
	SMNow      share.PerMille `json:"smNowPerMille"` // in class elastic: SMs that its latest token is worth
	Quota      share.PerMille `json:"quotaPerMille"`
	QuotaLimit share.PerMille `json:"quotaLimitPerMille"`
	Memory     share.Bytes    `json:"memoryBytes"`
	UsedTime   share.PerMille `json:"usedPerMille"` // device time of the last second
	UsedMemory share.Bytes    `json:"usedBytes"`
	Running    bool           `json:"running"` // one of its processes may launch kernels
	Waiting    int            `json:"waiting"` // number of processes that wait for their turn
	Processes  []Process      `json:"processes"`
}

// Process is one process on a vGPU.
type Process struct {
	PID      int         `json:"pid"`
	Launches uint64      `json:"launches"`
	Memory   share.Bytes `json:"memoryBytes"`
}
