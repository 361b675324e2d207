// Package search chooses what a profiler measures next.
//
// A Strategy sees the trials so far and names the next, so a profiler may stop at any time and continue from what it
// stored; nothing is kept between calls. The strategies: the grid of FaST-GShare, hybrid growth for inference and
// bisection for training (Dilu), every stage on every slice (FluidFaaS), and the sweep over vCPUs that feeds the latency
// models (PAMBA).
package search

import (
	"errors"
	"fmt"

	"github.com/gshare-dev/gshare/vgpu/profile"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// Setting is what one trial runs with (FG-12, DI-10).
type Setting struct {
	Stage    int // of a cut model, from 1; 0 is the whole model
	Resource profile.Resource
	Batch    int
}

// Trial is a setting that was tried: what was measured, or that the function did not run there. Of a failed trial only
// the setting counts: too little memory is a result, not an error.
type Trial struct {
	Point  profile.Point
	Failed bool
}

func (t Trial) setting() Setting { return Setting{t.Point.Stage, t.Point.Resource, t.Point.Batch} }

func (t Trial) validate() error {
	if t.Failed {
		return t.Point.Resource.Validate()
	}
	return t.Point.Validate()
}

// Strategy chooses settings. Once the trial that it names is in the history, it never names it again, and it ends.
type Strategy interface {
	// Next returns the next trial, or false if there is none. The history is of one model, in any order, and may
	// hold trials of other searches; of equal settings the last counts. Errors are *share.FieldError.
	Next(history []Trial) (Setting, bool, error)
}

// ErrNone reports that no tried setting meets the function's SLO (F5).
var ErrNone = errors.New("no setting keeps the quality of service")

// ErrUnfinished reports that Next still returns trials.
var ErrUnfinished = errors.New("the search has not ended")

// results finds trials by their setting.
type results map[Setting]Trial

func index(history []Trial) (results, error) {
	r := results{}
	for i, t := range history {
		if err := t.validate(); err != nil {
			return nil, fmt.Errorf("trial %d: %w", i, err)
		}
		r[t.setting()] = t
	}
	return r, nil
}

// first returns the first of settings that was not tried.
func (r results) first(settings []Setting) (Setting, bool) {
	for _, s := range settings {
		if _, tried := r[s]; !tried {
			return s, true
		}
	}
	return Setting{}, false
}

// elastic returns a share of Dilu's kind: SMs between request and limit, all of the time.
func elastic(request, limit share.PerMille, memory share.Bytes) share.Share {
	return share.Share{
		SMRequest: request, SMLimit: limit,
		QuotaRequest: share.Whole, QuotaLimit: share.Whole,
		Memory: memory,
	}
}

func checkBatch(batch int) error {
	if batch < 1 || batch > profile.MaxBatch {
		return share.Invalid("batch", "%d is outside 1 to %d", batch, profile.MaxBatch)
	}
	return nil
}

func checkBatches(batches []int) error {
	for _, batch := range batches {
		if err := checkBatch(batch); err != nil {
			return err
		}
	}
	return nil
}

func checkPart(field string, part share.PerMille) error {
	if part < 1 || part > share.Whole {
		return share.Invalid(field, "%d per-mille is outside 1 to %d", part, share.Whole)
	}
	return nil
}
