// Package search implements strategies that select what a profiler measures next.
//
// A Strategy keeps no state between calls: it derives the next trial from the history of trials, so a profiler can stop
// at any time and resume from stored trials. The strategies are the grid of FaST-GShare, hybrid growth for inference and
// bisection for training (both Dilu), and the sweep over vCPUs for the latency models of PAMBA.
package search

import (
	"errors"
	"fmt"

	"github.com/gshare-dev/gshare/serving/rules/profile"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// Setting is the resource and the batch size of one trial (a measurement of a model).
type Setting struct {
	Stage    int // stage of a partitioned model, from 1; 0 is the whole model
	Resource profile.Resource
	Batch    int
}

// Trial is the result of trying one setting: a measurement, or a failure to run. In a failed trial only the setting is valid;
// insufficient memory is a result, not an error.
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

// Strategy selects the settings that a profiler measures. It never returns a setting whose trial is in the history, so it ends.
type Strategy interface {
	// Next returns the next trial, or false if there is none. The history is of one model, in any order, and may
	// contain trials of other searches; the last of several trials with equal settings counts. Errors are
	// *share.FieldError.
	Next(history []Trial) (Setting, bool, error)
}

// ErrNoSetting reports that no measured setting meets the function's SLO.
var ErrNoSetting = errors.New("no setting keeps the quality of service")

// ErrUnfinished reports that a search has no result yet because settings remain to be measured.
var ErrUnfinished = errors.New("the search has not ended")

// results maps settings to their recorded trials.
type results map[Setting]Trial

// index validates a strategy's parameters and its history of trials, and returns the trials by setting.
func index(strategy interface{ validate() error }, history []Trial) (results, error) {
	if err := strategy.validate(); err != nil {
		return nil, err
	}
	r := results{}
	for i, t := range history {
		if err := t.validate(); err != nil {
			return nil, fmt.Errorf("trial %d: %w", i, err)
		}
		r[t.setting()] = t
	}
	return r, nil
}

// firstUntried returns the first of the settings that has no trial, and false if all have one.
func (r results) firstUntried(settings []Setting) (Setting, bool) {
	for _, s := range settings {
		if _, tried := r[s]; !tried {
			return s, true
		}
	}
	return Setting{}, false
}

// nextResult converts a missing setting, or nil if the search has ended, to the results of Strategy.Next.
func nextResult(missing *Setting, err error) (Setting, bool, error) {
	if err != nil || missing == nil {
		return Setting{}, false, err
	}
	return *missing, true, nil
}

// elasticShare returns a share as Dilu uses them: SMs that vary between request and limit, at full quota.
func elasticShare(request, limit share.PerMille, memory share.Bytes) share.Share {
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
