package profiler

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/gshare-dev/gshare/vgpu/node/atomicfile"
	"github.com/gshare-dev/gshare/vgpu/node/versioned"
	"github.com/gshare-dev/gshare/vgpu/profile"
	"github.com/gshare-dev/gshare/vgpu/profile/search"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// RecordVersion is the version of the JSON form of Record. It rises when a field changes its meaning or goes.
const RecordVersion = 1

// Record is a profile that may still grow: what was measured of a model, and of what exactly.
type Record struct {
	Version     int         `json:"version"`
	Model       string      `json:"model"`
	Fingerprint Fingerprint `json:"fingerprint"`
	Plan        Plan        `json:"plan"`
	Complete    bool        `json:"complete"` // the strategy has ended
	Trials      []Trial     `json:"trials"`
	GPUSeconds  float64     `json:"gpuSeconds"` // for which a device was reserved, trials that were given up included
	Attempt     *Attempt    `json:"attempt,omitempty"`
}

// Fingerprint identifies what was measured. A profile with another one says nothing about this server on this machine.
type Fingerprint struct {
	Program string `json:"program"` // SHA-256 of the command, its environment and the file of the program
	Device  string `json:"device"`  // model of the GPU, its SMs and memory
	Driver  string `json:"driver"`
	Gshare  string `json:"gshare"`
}

// Plan is what was asked of the profiler. Trials of another plan cannot be compared.
type Plan struct {
	SLO         profile.Seconds `json:"slo"`
	Strategy    string          `json:"strategy"`
	Step        share.PerMille  `json:"step,omitempty"` // of the SMs
	MaxBatch    int             `json:"maxBatch"`
	Concurrency int             `json:"concurrency"`        // requests that the server gets at once
	Memory      share.Bytes     `json:"memory"`             // that the server may use
	Request     string          `json:"request"`            // SHA-256 of the request that is sent
	Progress    profile.Seconds `json:"progress,omitempty"` // for which a program is measured that answers no requests; others: 0
}

// Attempt is a trial that has begun and not ended. A record has one while a profiler measures, and after one was killed.
type Attempt struct {
	Resource profile.Resource `json:"resource"`
	Batch    int              `json:"batch"`
	Count    int              `json:"count"` // how often it was begun
}

// Trial is the outcome of one setting.
type Trial struct {
	// Point has the time of a batch where the server has always one (the closed loop), and as Throughput the highest rate within the
	// objective, in rows a second, where requests come at random; 0: none.
	Point profile.Point `json:"point"`
	// Failed is why the server does not run in this setting; then Point has the setting only.
	Failed string `json:"failed,omitempty"`

	Plateau    float64 `json:"plateau"`              // rows a second where the server always has a batch
	Confidence float64 `json:"confidence"`           // half of the 95 % confidence interval of Point.Mean, as a part of it
	P50        float64 `json:"p50Ms,omitempty"`      // latency at the rate Point.Throughput, in milliseconds since a request was due
	P99        float64 `json:"p99Ms,omitempty"`      // likewise
	ClientLate bool    `json:"clientLate,omitempty"` // the rate may be higher: the client was too slow to tell
	Confirmed  bool    `json:"confirmed,omitempty"`  // the rate was measured again for longer
	Steps      []Step  `json:"steps,omitempty"`
	GPUSeconds float64 `json:"gpuSeconds"`
}

// Step is one rate at which requests came at random.
type Step struct {
	Rate       float64 `json:"rate"`   // rows a second
	InTime     float64 `json:"inTime"` // part of the requests; if the step was ended early, less than this would have been
	P99        float64 `json:"p99Ms"`
	Met        bool    `json:"met"` // enough of them were in time
	ClientLate bool    `json:"clientLate,omitempty"`
}

// Task is what a profiler does next.
type Task struct {
	search.Setting
	Confirm bool // the trial of the setting is the best, and is measured again for longer
}

// Next returns what is to be measured next: what the strategy asks for, and in the end the best trial again, until one stays the best. It is nil if
// the record is complete. Like strategies it depends on the record alone, so that whoever is killed is followed by one who does the same.
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

// NextConfirmation returns the best trial as a task, or nil if there is none or it was measured again. It is what Next returns once the strategy has
// ended, and what is left to do for one that is not to go on.
func (r *Record) NextConfirmation(s search.Strategy) *Task {
	best := r.best(s)
	if best == nil || best.Confirmed {
		return nil
	}
	return &Task{Setting: search.Setting{Resource: best.Point.Resource, Batch: best.Point.Batch}, Confirm: true}
}

// confirmed returns the trial that a task measures again, or nil.
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

// history returns the trials as strategies read them.
func (r *Record) history() []search.Trial {
	var all []search.Trial
	for _, t := range r.Trials {
		all = append(all, search.Trial{Point: t.Point, Failed: t.Failed != ""})
	}
	return all
}

// Points returns the measurements, without the settings in which the server does not run. A latency model is fitted to these.
func (r *Record) Points() []profile.Point {
	points := []profile.Point{}
	for _, t := range r.Trials {
		if t.Failed == "" {
			points = append(points, t.Point)
		}
	}
	return points
}

// SMTime returns the SM-time that a trial's share reserves for one request at the highest rate within the objective, in seconds of a whole
// device; 0 if there is no such rate.
func (t *Trial) SMTime() float64 {
	if t.Failed != "" || t.Point.Throughput == 0 {
		return 0
	}
	whole := float64(share.Whole) * float64(share.Whole)
	return float64(t.Point.Resource.SM) * float64(t.Point.Resource.Quota) / whole / t.Point.Throughput
}

// Best returns the trial of the share that a search recommends. For search.Bisection it is that of its request: the error is search.ErrUnfinished if it
// has not ended. For others it is the trial whose share costs the least SM-time for each request within the objective, the smaller share where two cost
// the same; once several trials were measured again, it is one of these. The error is search.ErrNoSetting if no trial meets the objective.
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

// NeverRan returns why the server did not run in the last setting that was tried, if it ran in none: then it is not its share that is wrong. Otherwise it returns an
// empty text.
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

// maxConfirmed is how many trials are measured again, as the best of those that were not may be the best by luck again.
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

// Load reads the record of a file, or returns one without trials if there is no such file. The error says so if the file is of another
// model, plan or fingerprint.
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

// Validate returns an error that names the trial if one was not measured on a valid share.
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

// difference returns in what another record differs, or an empty string if its trials can be used.
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

// Save writes the record to a file. A reader finds the old or the new one, also if this process is killed meanwhile.
func (r *Record) Save(file string) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return atomicfile.WriteFile(file, append(text, '\n'), 0o644)
}
