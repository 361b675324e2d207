// Package control is what gshare run, set, ps and top say to the agent of a machine without Kubernetes: HTTP with JSON over a
// Unix socket.
//
// RunsPath takes a RunRequest and answers with one Event a line: any number of Waiting, then Grant or Refused. The caller's
// own process, as the socket names it, becomes the run: it holds the share until it has ended, with all processes that are
// connected to the token server. Closing the connection while it waits leaves the queue. LimitPath takes a LimitRequest and
// answers with an Event: Refused, or nothing. StatusPath answers with a Status.
package control

import (
	"time"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// The paths; their first part is the version of everything here.
const (
	RunsPath   = "/v1/runs"
	StatusPath = "/v1/status"
	LimitPath  = "/v1/limit"
)

// MaxRequest bounds a request, in bytes.
const MaxRequest = 16 << 10

// RunRequest asks for a share for the calling process. Amounts are written as in a pod: totals of the run, in percent points,
// percent, MiB and devices; nil is not written.
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
	Wait       bool   `json:"wait,omitempty"`  // for room, in a queue
}

// LimitRequest moves the SM limit of an elastic run, in percent of its device: between its request and the limit that it began
// with. Only the run's user and root may.
type LimitRequest struct {
	Run     string `json:"run"` // ID, or a name that only one run has
	SMLimit int64  `json:"smLimit"`
}

// Event is one line of the answer; one field is set.
type Event struct {
	Waiting *Refusal `json:"waiting,omitempty"`
	Grant   *Grant   `json:"grant,omitempty"`
	Refused *Refusal `json:"refused,omitempty"`
}

// Refusal says why a share was not admitted.
type Refusal struct {
	Field  string   `json:"field,omitempty"` // what is wrong with the request, as share.FieldError names it
	Reason string   `json:"reason"`
	Fits   []string `json:"fits,omitempty"` // what would fit now, one change each
}

// Grant is an admitted run.
type Grant struct {
	ID          string            `json:"id"`
	Dir         string            `json:"dir"` // with the token server's socket and the policy
	Environment []string          `json:"environment"`
	Inherit     bool              `json:"inherit"` // the program has to inherit a connection: it cannot be told from others of its user
	Enforcement EnforcementStatus `json:"enforcement"`
}

// EnforcementStatus says by what each part of a share is enforced here, and what is missing.
type EnforcementStatus struct {
	Memory   string   `json:"memory"`
	SMs      string   `json:"sms"`
	Time     string   `json:"time"`
	Identity string   `json:"identity"`
	Missing  []string `json:"missing,omitempty"`
}

// Status is the machine with its runs.
type Status struct {
	Devices []Device `json:"devices"`
	Runs    []Run    `json:"runs"`
}

// Device is one GPU, or one of its MIG instances.
type Device struct {
	UUID      string         `json:"uuid"`
	Profile   string         `json:"profile,omitempty"` // of a MIG instance
	Model     string         `json:"model"`
	SMs       int            `json:"sms"`
	Memory    share.Bytes    `json:"memoryBytes"`
	Promised  share.Bytes    `json:"promisedBytes"` // to runs
	Time      share.PerMille `json:"timePerMille"`  // SM-time promised to runs
	Class     string         `json:"class,omitempty"`
	Simulated bool           `json:"simulated,omitempty"`
}

// Run is one admitted run.
type Run struct {
	ID          string            `json:"id"`
	Name        string            `json:"name,omitempty"`
	UID         uint32            `json:"uid"`
	PID         int               `json:"pid"` // that asked for the share; it may have ended before its children
	Started     time.Time         `json:"started"`
	Priority    string            `json:"class"`
	Enforcement EnforcementStatus `json:"enforcement"`
	VGPUs       []VGPU            `json:"vgpus"`
}

// VGPU is one vGPU of a run. What is measured is as the processes report it.
type VGPU struct {
	Device     string         `json:"device"`
	SM         share.PerMille `json:"smPerMille"`
	SMLimit    share.PerMille `json:"smLimitPerMille"`
	SMNow      share.PerMille `json:"smNowPerMille"` // between the two in class elastic
	Quota      share.PerMille `json:"quotaPerMille"`
	QuotaLimit share.PerMille `json:"quotaLimitPerMille"`
	Memory     share.Bytes    `json:"memoryBytes"`
	UsedTime   share.PerMille `json:"usedPerMille"` // of the last second
	UsedMemory share.Bytes    `json:"usedBytes"`
	Running    bool           `json:"running"` // one of its processes may launch
	Waiting    int            `json:"waiting"` // processes that wait for their turn
	Processes  []Process      `json:"processes"`
}

// Process is one process on a vGPU.
type Process struct {
	PID      int         `json:"pid"`
	Launches uint64      `json:"launches"`
	Memory   share.Bytes `json:"memoryBytes"`
}
