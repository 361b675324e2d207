package profiler

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/gshare-dev/gshare/serving/rules/profile"
	"github.com/gshare-dev/gshare/vgpu/api/versioned"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// JobVersion is the version of the JSON forms of Job and Outcome. It rises when a field changes its meaning or is removed.
const JobVersion = 1

// Job is one measurement of a server that another process has started. It is all that the measuring process is told about the server besides
// its address.
type Job struct {
	Version int     `json:"version"`
	Address string  `json:"address"` // host:port of the server
	Request Request `json:"request"`
	Load    Load    `json:"load"`
	Batch   int     `json:"batch"`
	// Confirm is the rate, in rows per second, at which the second measurement of a trial begins; 0 for a first measurement.
	Confirm float64 `json:"confirm,omitempty"`
}

// Outcome is the result of a Job: a Trial, or one of the errors.
type Outcome struct {
	Version int    `json:"version"`
	Trial   *Trial `json:"trial,omitempty"` // without steps, and without what only a process on the server's node can know
	// Failed says why the server does not run in this setting: a result, like a FailedError.
	Failed string `json:"failed,omitempty"`
	// Error says why nothing could be measured, for example because the server does not know the request.
	Error string `json:"error,omitempty"`
}

// MaxOutcome is the greatest length of an encoded Outcome in bytes: that of a container's termination message, which carries it.
const MaxOutcome = 4096

// maxReason is the greatest length in bytes of each text of an Outcome.
const maxReason = 512

// Run carries out the job. It returns an error only if ctx ends.
func (j *Job) Run(ctx context.Context) (Outcome, error) {
	trial, err := j.measure(ctx)
	if ctx.Err() != nil {
		return Outcome{}, ctx.Err()
	}
	o := Outcome{Version: JobVersion}
	var failed *FailedError
	switch {
	case errors.As(err, &failed):
		o.Failed = shortened(failed.Reason)
	case err != nil:
		o.Error = shortened(err.Error())
	default:
		trial.Steps = nil // there may be many
		trial.Point.Batch = j.Batch
		o.Trial = &trial
	}
	return o, nil
}

func (j *Job) measure(ctx context.Context) (Trial, error) {
	request, err := j.Request.readBody()
	if err != nil {
		return Trial{}, fmt.Errorf("body of the request: %w", err)
	}
	c, err := NewClient(ctx, request, j.Address)
	if err != nil {
		return Trial{}, err
	}
	defer c.Close()
	server := remote{c}
	if j.Confirm == 0 {
		return j.Load.Measure(ctx, server, j.Batch)
	}
	t := Trial{Point: profile.Point{Batch: j.Batch, Throughput: j.Confirm}}
	err = j.Load.Confirm(ctx, server, &t)
	return t, err
}

// remote is a Server on another machine, of which only the answers are known.
type remote struct{ *Client }

// Usage implements Server. It returns nothing: whoever started the server knows it better.
func (remote) Usage(context.Context) (Usage, error) { return Usage{}, nil }

// Narrow implements Server. It does nothing: whoever started the server changes its quota.
func (remote) Narrow(context.Context, share.PerMille) bool { return false }

// Ended implements Server. It returns nil, because the end of a remote server is never known.
func (remote) Ended() <-chan struct{} { return nil }

// Failure implements Server.
func (remote) Failure() string { return "" }

// Close implements Server. It does nothing: the server does not belong to this process.
func (remote) Close() {}

// shortened shortens a reason so that an Outcome is never too long. Each byte of a reason takes at most 6 bytes in JSON.
func shortened(reason string) string {
	if len(reason) > maxReason {
		reason = reason[:maxReason-3] + "..."
	}
	return reason
}

// Encode returns the JSON form of an outcome, at most MaxOutcome bytes.
func (o *Outcome) Encode() ([]byte, error) { return json.Marshal(o) }

// DecodeJob reads the JSON form of a job, of at most maxJob bytes.
func DecodeJob(text []byte) (*Job, error) {
	var j Job
	if err := decodeJob(text, maxJob, &j); err != nil {
		return nil, fmt.Errorf("job: %w", err)
	}
	switch {
	case j.Batch < 1 || j.Batch > profile.MaxBatch:
		return nil, share.Invalid("batch", "%d is outside 1 to %d", j.Batch, profile.MaxBatch)
	case j.Load.Concurrency < 1 || j.Load.SLO <= 0:
		return nil, share.Invalid("load", "%d requests at once, each within %v, measure nothing", j.Load.Concurrency, j.Load.SLO)
	case !(j.Confirm >= 0 && j.Confirm <= maxRate):
		return nil, share.Invalid("confirm", "%v is not a rate", j.Confirm)
	}
	return &j, nil
}

// maxJob is the greatest length in bytes of a job as JSON. Its longest part is the request. An environment variable may have 128 KiB.
const maxJob = 100 << 10

// CheckLength returns an error if the request is too long for a Job. The API limits its fields too, but in characters, each of which takes up
// to 6 bytes in JSON.
func (r *Request) CheckLength() error {
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if most := maxJob - jobBesideRequest; len(text) > most {
		return share.Invalid("request", "takes %d bytes as JSON, of which %d are possible: put the body into a ConfigMap and name it in bodyFrom", len(text), most)
	}
	return nil
}

// jobBesideRequest is an upper bound in bytes on a Job without its request, as JSON.
const jobBesideRequest = 4 << 10

// maxRate is more rows per second than any server answers.
const maxRate = 1e9

// DecodeOutcome reads the outcome that another process has left. The text may be anything: DecodeOutcome returns an error unless it is an
// outcome of job j with its batch. The numbers of the outcome are then valid, but whether they were measured is not known.
func DecodeOutcome(text string, j *Job) (*Outcome, error) {
	var o Outcome
	if err := decodeJob([]byte(text), MaxOutcome, &o); err != nil {
		return nil, fmt.Errorf("outcome: %w", err)
	}
	o.Failed, o.Error = shortened(o.Failed), shortened(o.Error)
	if o.Trial == nil {
		if o.Failed == "" && o.Error == "" {
			return nil, errors.New("outcome: has neither a trial nor an error")
		}
		return &o, nil
	}
	t := o.Trial
	t.Steps, t.Failed, t.GPUSeconds = nil, "", 0
	p := t.Point
	p.Model, p.Resource = "model", profile.Resource{SM: share.Whole, Quota: share.Whole} // the other process does not know these
	if j.Confirm > 0 {
		p.Mean = max(p.Mean, 1) // it was measured the first time
	}
	switch err := p.Validate(); {
	case err != nil:
		return nil, fmt.Errorf("outcome: %w", err)
	case p.Batch != j.Batch || t.Confirmed != (j.Confirm > 0):
		return nil, errors.New("outcome: is that of another job")
	case !isRate(p.Throughput) || !isRate(t.Plateau) || !isRate(t.P50) || !isRate(t.P99) || j.Confirm > 0 && p.Throughput > j.Confirm:
		return nil, errors.New("outcome: a rate or a latency is not one")
	}
	return &o, nil
}

func isRate(x float64) bool { return x >= 0 && x <= maxRate } // false for NaN

func decodeJob(text []byte, most int, into any) error {
	if len(text) > most {
		return fmt.Errorf("%d bytes are more than %d", len(text), most)
	}
	return versioned.Decode(text, JobVersion, into)
}
