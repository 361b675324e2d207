package profiler

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/gshare-dev/gshare/serving/rules/profile"
	"github.com/gshare-dev/gshare/serving/rules/profile/search"
	"github.com/gshare-dev/gshare/vgpu/api/atomicfile"
	"github.com/gshare-dev/gshare/vgpu/api/versioned"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// RecordVersion is the version of the JSON form of Record. It rises when a field changes its meaning or is removed.
const RecordVersion = 1

// Record is a profile that may still grow: the measurements of a model, and exactly what was measured.
type Record struct {
	Version     int         `json:"version"`
	Model       string      `json:"model"`
	Fingerprint Fingerprint `json:"fingerprint"`
	Plan        Plan        `json:"plan"`
	Complete    bool        `json:"complete"` // the strategy has ended
	Trials      []Trial     `json:"trials"`
	GPUSeconds  float64     `json:"gpuSeconds"` // time for which a device was reserved, including trials that were given up
	Attempt     *Attempt    `json:"attempt,omitempty"`
}

// Fingerprint identifies what was measured. A profile with another fingerprint does not apply to this server on this machine.
type Fingerprint struct {
	Program string `json:"program"` // SHA-256 of the command, its environment and the file of the program
	Device  string `json:"device"`  // GPU model, with its SMs and memory
	Driver  string `json:"driver"`
	Gshare  string `json:"gshare"`
}

// Plan is what the profiler was asked to do. Trials of different plans cannot be compared.
type Plan struct {
	SLO         profile.Seconds `json:"slo"`
	Strategy    string          `json:"strategy"`
	Step        share.PerMille  `json:"step,omitempty"` // of the SMs
	MaxBatch    int             `json:"maxBatch"`
	Concurrency int             `json:"concurrency"`        // number of requests at the server at once
	Memory      share.Bytes     `json:"memory"`             // that the server may use
	Request     string          `json:"request"`            // SHA-256 of the request that is sent
	Progress    profile.Seconds `json:"progress,omitempty"` // measuring time, for a program that answers no requests; otherwise 0
}

// Attempt is a trial that has begun and not ended. A record has one while a profiler measures and after a profiler was killed.
type Attempt struct {
	Resource profile.Resource `json:"resource"`
	Batch    int              `json:"batch"`
	Count    int              `json:"count"` // how many times it was begun
}

// Trial is the result of one setting.
type Trial struct {
	// Point holds the time of a batch on a server that is always busy (the closed loop). Its Throughput is the highest rate within
	// the objective, in rows per second, while requests arrive at random; 0 if there is none.
	Point profile.Point `json:"point"`
	// Failed says why the server does not run in this setting; Point then has the setting only.
	Failed string `json:"failed,omitempty"`

	Plateau    float64 `json:"plateau"`              // rows per second while the server always has a batch
	Confidence float64 `json:"confidence"`           // half the width of the 95 % confidence interval of Point.Mean, as a fraction of Point.Mean
	P50        float64 `json:"p50Ms,omitempty"`      // latency at the rate Point.Throughput, in milliseconds from when a request was due
	P99        float64 `json:"p99Ms,omitempty"`      // likewise
	ClientLate bool    `json:"clientLate,omitempty"` // the rate may be higher: the client was too slow to tell
	Confirmed  bool    `json:"confirmed,omitempty"`  // the rate was measured again for longer
	Steps      []Step  `json:"steps,omitempty"`
	GPUSeconds float64 `json:"gpuSeconds"`
}

// Step is the result of one rate at which requests arrived at random.
type Step struct {
	Rate       float64 `json:"rate"`   // rows a second
	InTime     float64 `json:"inTime"` // fraction of the requests; if the step ended early, an upper bound of what it would have been
	P99        float64 `json:"p99Ms"`
	Met        bool    `json:"met"` // enough requests were in time
	ClientLate bool    `json:"clientLate,omitempty"`
}

// Task is what a profiler does next.
type Task struct {
	search.Setting
	Confirm bool // measure the trial of this setting again, for longer, because it is the best
}

// Next returns what to measure next: what the strategy asks for and, once it has ended, the best trial again, until the best trial is one that was
// measured again. It returns nil if the record is complete. Like a strategy it depends on the record alone, so that the successor of a profiler
// that was killed does the same.
func (r *Record) Next(s search.Strategy) (*Task, error) {
	setting, more, err := s.Next(r.history())
	if err != nil {
		return nil, err
	}
	if more {
		return &Task{Setting: setting}, nil
	}
	return r.NextConfirmation(s), nil
}

// NextConfirmation returns the best trial as a task, or nil if there is none or it was already measured again. Next returns it once the strategy has
// ended. It is also what remains to be done if the strategy is not to continue.
func (r *Record) NextConfirmation(s search.Strategy) *Task {
	best := r.best(s)
	if best == nil || best.Confirmed {
		return nil
	}
	return &Task{Setting: search.Setting{Resource: best.Point.Resource, Batch: best.Point.Batch}, Confirm: true}
}

// confirmed returns the trial that task t measures again, or nil.
func (r *Record) confirmed(t *Task) *Trial {
	if !t.Confirm {
		return nil
	}
	return r.trialOf(t.Setting)
}

// trialOf returns the trial of a setting, or nil.
func (r *Record) trialOf(s search.Setting) *Trial {
	for i := range r.Trials {
		if p := &r.Trials[i].Point; p.Resource == s.Resource && p.Batch == s.Batch {
			return &r.Trials[i]
		}
	}
	return nil
}

// history returns the trials in the form that strategies read.
func (r *Record) history() []search.Trial {
	var all []search.Trial
	for _, t := range r.Trials {
		all = append(all, search.Trial{Point: t.Point, Failed: t.Failed != ""})
	}
	return all
}

// Points returns the measurements for fitting a latency model, without the settings in which the server does not run.
func (r *Record) Points() []profile.Point {
	points := []profile.Point{}
	for _, t := range r.Trials {
		if t.Failed == "" {
			points = append(points, t.Point)
		}
	}
	return points
}

// SMTime returns the SM-time that a trial's share reserves per request at the highest rate within the objective, in seconds of a whole
// device; 0 if there is no such rate.
func (t *Trial) SMTime() float64 {
	if t.Failed != "" || t.Point.Throughput == 0 {
		return 0
	}
	whole := float64(share.Whole) * float64(share.Whole)
	return float64(t.Point.Resource.SM) * float64(t.Point.Resource.Quota) / whole / t.Point.Throughput
}

// Best returns the trial of the share that a search recommends. For search.Bisection it is the trial of the request of its result; the error is
// search.ErrUnfinished if the search has not ended. For other searches it is the trial whose share costs the least SM-time per request within the
// objective, or the one with fewer SMs if two cost the same; once maxConfirmed trials were measured again, it is one of these. The error is
// search.ErrNoSetting if no trial meets the objective.
func (r *Record) Best(s search.Strategy) (Trial, error) {
	if best := r.best(s); best != nil {
		return *best, nil
	}
	if b, bisects := s.(search.Bisection); bisects {
		if _, err := b.Result(r.history()); err != nil {
			return Trial{}, err
		}
	}
	return Trial{}, search.ErrNoSetting
}

// NeverRan returns why the server did not run in the last setting tried, if it ran in no setting: the cause is then not its share. Otherwise it returns an
// empty string.
func (r *Record) NeverRan() string {
	why := ""
	for _, t := range r.Trials {
		if why = t.Failed; why == "" {
			return ""
		}
	}
	return why
}

func (r *Record) best(s search.Strategy) *Trial {
	b, bisects := s.(search.Bisection)
	if !bisects {
		return r.mostEfficient()
	}
	found, err := b.Result(r.history())
	if err != nil {
		return nil
	}
	return r.trialOf(b.Setting(found.SMRequest))
}

// maxConfirmed is the number of confirmed trials from which on only these are compared. Without it, the best of the others, which may be best only
// by luck, would be measured again and again.
const maxConfirmed = 3

func (r *Record) mostEfficient() (best *Trial) {
	confirmed := 0
	for _, t := range r.Trials {
		if t.Confirmed && t.SMTime() > 0 {
			confirmed++
		}
	}
	for i := range r.Trials {
		t := &r.Trials[i]
		if t.SMTime() == 0 || confirmed >= maxConfirmed && !t.Confirmed {
			continue
		}
		if best == nil || cmp.Or(cmp.Compare(t.SMTime(), best.SMTime()), cmp.Compare(t.Point.Resource.SM, best.Point.Resource.SM)) < 0 {
			best = t
		}
	}
	return best
}

// Load reads the record from a file, or returns one without trials if the file does not exist. It returns an error if the file belongs
// to another model, plan or fingerprint.
func (r Record) Load(file string) (*Record, error) {
	r.Version, r.Trials = RecordVersion, []Trial{}
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return &r, nil
	}
	if err != nil {
		return nil, err
	}
	var saved Record
	if err := versioned.Decode(text, RecordVersion, &saved); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if difference := r.difference(&saved); difference != "" {
		return nil, fmt.Errorf("%s: was measured with another %s; remove it, or name another file with --state", file, difference)
	}
	if err := saved.Validate(); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return &saved, nil
}

// Validate returns an error that names the first trial that is not valid.
func (r *Record) Validate() error {
	for i, t := range r.history() {
		if err := validTrial(t); err != nil {
			return fmt.Errorf("trials[%d]: %w", i, err)
		}
	}
	return nil
}

func validTrial(t search.Trial) error {
	if t.Failed {
		return t.Point.Resource.Validate()
	}
	return t.Point.Validate()
}

// difference names what differs in another record, or returns an empty string if its trials can be used.
func (r *Record) difference(other *Record) string {
	a, b := r.Fingerprint, other.Fingerprint
	switch {
	case r.Model != other.Model:
		return "function (" + other.Model + ")"
	case a.Program != b.Program:
		return "command"
	case a.Device != b.Device:
		return "device (" + b.Device + ")"
	case a.Driver != b.Driver:
		return "driver (" + b.Driver + ")"
	case a.Gshare != b.Gshare:
		return "version of gshare (" + b.Gshare + ")"
	case r.Plan != other.Plan:
		return "objective, request or search"
	}
	return ""
}

// Save writes the record to a file. A reader finds either the old or the new one, even if this process is killed meanwhile.
func (r *Record) Save(file string) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return atomicfile.WriteFile(file, append(text, '\n'), 0o644)
}
