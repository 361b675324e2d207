// Package control defines the API of the agent on a machine without Kubernetes, which gshare run, set, stop, ps and top use: HTTP with JSON over
// a Unix socket.
//
// A POST of a RunRequest to RunsPath is answered by a stream of Events, one a line: any number of Waiting, then Grant or Refused. The
// calling process, which the socket identifies, becomes the run: it holds the share until it has exited, together with all processes that
// are connected to the token server. A caller that closes the connection while it waits leaves the queue. A LimitRequest to LimitPath is
// answered by an Event with Refused, or by nothing. So is a StopRequest to StopPath, once the run has ended. StatusPath returns a Status.
//
// Within a version of the API, fields of answers are only added, and clients ignore those that they do not know. Of requests, the agent refuses
// unknown fields.
//
// The agent closes connections that are idle, or that take seconds to send a request, and those of a user who has too many. It refuses a
// RunRequest that would wait if too many requests of its user already do.
package control

import (
	"encoding/json"
	"errors"
	"io"
	"time"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// The paths of the API. Their first part is the version of the API.
const (
	RunsPath   = "/v1/runs"
	StatusPath = "/v1/status"
	LimitPath  = "/v1/limit"
	StopPath   = "/v1/stop"
)

// MaxRequest is the maximum size of a request body in bytes.
const MaxRequest = 16 << 10

// RunRequest requests a share for the calling process. Amounts are totals of the run, in the units of a pod: percentage points of SMs,
// percent of time, MiB and devices. A nil field was not specified.
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

// LimitRequest changes one limit of a run while its program runs. Only root and the user of the run may send it.
type LimitRequest struct {
	Run     string `json:"run"`               // ID, or the name of exactly one run
	SMLimit *int64 `json:"smLimit,omitempty"` // of a run of class elastic, in percent of its device, between its request and its initial limit
	Quota   *int64 `json:"quota,omitempty"`   // of a run of class mps, in percent of the time, at most that with which it began
}

// StopRequest ends the processes of a run: with SIGTERM and, after the grace period, SIGKILL. Only root and the user of the run may send it.
type StopRequest struct {
	Run          string `json:"run"`          // ID, or the name of exactly one run
	GraceSeconds int64  `json:"graceSeconds"` // at most an hour
}

// Event is one line of the answer to a RunRequest or LimitRequest. Exactly one field is set. A request that waits is answered by a line for
// each reason, and then by a grant or a refusal.
type Event struct {
	Waiting *Refusal `json:"waiting,omitempty"`
	Grant   *Grant   `json:"grant,omitempty"`
	Refused *Refusal `json:"refused,omitempty"`
}

// RefusalKind says what would have to change for a refused request to be granted.
type RefusalKind string

// The kinds of refusals. Older agents send none.
const (
	Invalid   RefusalKind = "invalid"   // the request: it is against the rules, or more than the machine has
	Busy      RefusalKind = "busy"      // the load: the request may be granted once other programs have ended
	NotFound  RefusalKind = "notFound"  // no run, or more than one, has the name
	Forbidden RefusalKind = "forbidden" // the user: the run is another's
	Failed    RefusalKind = "failed"    // the machine: the request was right, but the agent could not do it
)

// Refusal is the reason for which a request was not granted.
type Refusal struct {
	Kind   RefusalKind `json:"kind,omitempty"`
	Field  string      `json:"field,omitempty"` // the invalid field, in the names of share.FieldError
	Reason string      `json:"reason"`
	Fits   []string    `json:"fits,omitempty"` // changes of one field with which the share would fit now
}

// Error returns the reason.
func (r *Refusal) Error() string { return r.Reason }

// Grant is the answer for an admitted run: its ID, and the environment that its program needs.
type Grant struct {
	ID          string            `json:"id"`
	Dir         string            `json:"dir"` // holds the token server's socket and the policy file
	Environment []string          `json:"environment"`
	Inherit     bool              `json:"inherit"` // the program must inherit the connection, as it cannot be identified among processes of its user
	Enforcement EnforcementStatus `json:"enforcement"`
}

// EnforcementStatus names the mechanisms that enforce a share's memory, SMs and time on this machine, and what is missing.
type EnforcementStatus struct {
	Memory   string   `json:"memory"`
	SMs      string   `json:"sms"`
	Time     string   `json:"time"`
	Identity string   `json:"identity"`
	Missing  []string `json:"missing,omitempty"`
}

// Status lists the machine's GPU devices and the admitted runs.
type Status struct {
	Devices []Device `json:"devices"`
	Runs    []Run    `json:"runs"`
}

// Device is the state of one GPU, or of one MIG instance.
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

// Run is the state of one admitted run, a program that holds a share on a machine without Kubernetes.
type Run struct {
	ID          string            `json:"id"`
	Name        string            `json:"name,omitempty"`
	UID         uint32            `json:"uid"`
	PID         int               `json:"pid"` // process that requested the share; it may have exited before its children
	Started     time.Time         `json:"started"`
	Priority    string            `json:"class"`
	Enforcement EnforcementStatus `json:"enforcement"`
	SelfPaced   int               `json:"selfPaced,omitempty"` // processes that have a session and yet do not follow the agent, but pace themselves
	Unhooked    string            `json:"unhooked,omitempty"`  // why a program of the run has not loaded the hook: it is ...
	Refused     string            `json:"refused,omitempty"`   // why a process of the run has no session now, and so no memory and no launches
	Refusals    uint64            `json:"refusals"`            // connections of its processes that were refused
	VGPUs       []VGPU            `json:"vgpus"`
}

// VGPU is the state of one vGPU of a run. Measured values are those that its processes report.
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

// Process is the state of one process of a run on a vGPU.
type Process struct {
	PID      int         `json:"pid"`
	Launches uint64      `json:"launches"`
	Memory   share.Bytes `json:"memoryBytes"`
}

// DecodeRunRequest decodes the body of one run request. It fails on unknown fields and on trailing data. The caller limits the size of the
// body.
func DecodeRunRequest(body io.Reader) (r RunRequest, err error) {
	err = decode(body, &r)
	return r, err
}

// DecodeLimitRequest decodes the body of one limit request. It fails on unknown fields and on trailing data. The caller limits the size of
// the body.
func DecodeLimitRequest(body io.Reader) (r LimitRequest, err error) {
	err = decode(body, &r)
	return r, err
}

// DecodeStopRequest decodes the body of one stop request. It fails on unknown fields and on trailing data. The caller limits the size of the
// body.
func DecodeStopRequest(body io.Reader) (r StopRequest, err error) {
	err = decode(body, &r)
	return r, err
}

func decode(body io.Reader, into any) error {
	decoder := json.NewDecoder(body)
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		return err
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return errors.New("unexpected data after the request")
	}
	return nil
}
