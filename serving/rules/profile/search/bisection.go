package search

import (
	"github.com/gshare-dev/gshare/serving/rules/profile"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// Bisection is a strategy that finds the SMs that training needs (Dilu, section 3.2): the request is the smallest share that keeps 80 %
// of the throughput on all SMs, the limit the smallest that keeps 100 %.
//
// Dilu ends when the throughput of a trial is within 2 % of the target. On a model that saturates, the first trial is, with far too many
// SMs; on a coarse grid there may be no such trial. Here the 2 % are only a tolerance below the target, and the search ends when the
// interval has shrunk to one step.
type Bisection struct {
	Step   share.PerMille // resolution of the share; divides 1000
	Batch  int
	Device string
}

// requestPart and limitPart are the fractions of the exclusive throughput that request and limit keep, apart from tolerance.
const (
	requestPart = 0.80
	limitPart   = 1.00
	tolerance   = 0.02
)

// Next returns the next setting to measure, and false if the search has ended. All SMs come first, then the bisection for the
// request, then that for the limit.
func (b Bisection) Next(history []Trial) (Setting, bool, error) {
	_, next, err := b.search(history)
	return nextResult(next, err)
}

// Result returns the share that training should request. It returns ErrNoSetting if training does not run on all SMs, ErrUnfinished, or a
// *share.FieldError.
func (b Bisection) Result(history []Trial) (share.Share, error) {
	found, next, err := b.search(history)
	switch {
	case err != nil:
		return share.Share{}, err
	case next != nil:
		return share.Share{}, ErrUnfinished
	case found == nil:
		return share.Share{}, ErrNoSetting
	}
	return *found, nil
}

func (b Bisection) search(history []Trial) (found *share.Share, next *Setting, err error) {
	tried, err := index(b, history)
	if err != nil {
		return nil, nil, err
	}
	whole := b.Setting(share.Whole)
	all, ran := tried[whole]
	switch {
	case !ran:
		return nil, &whole, nil
	case all.Failed || all.Point.Throughput == 0:
		return nil, nil, nil
	}
	request, next := b.smallestShare(tried, requestPart*all.Point.Throughput)
	if next != nil {
		return nil, next, nil
	}
	limit, next := b.smallestShare(tried, limitPart*all.Point.Throughput)
	result := elasticShare(request, limit, all.Point.Memory) // whatever serves the limit serves the request
	return &result, next, nil
}

// smallestShare returns by bisection the fewest SMs that reach the target throughput, or the first setting that still has to be measured.
func (b Bisection) smallestShare(tried results, target float64) (share.PerMille, *Setting) {
	low, high := share.PerMille(0), share.Whole/b.Step // in steps
	for high-low > 1 {                                 // D25
		middle := (low + high) / 2
		s := b.Setting(middle * b.Step)
		trial, ran := tried[s]
		switch {
		case !ran:
			return 0, &s
		case !trial.Failed && trial.Point.Throughput >= target*(1-tolerance):
			high = middle
		default:
			low = middle
		}
	}
	return high * b.Step, nil
}

// Setting returns the setting that the search measures for a number of SMs.
func (b Bisection) Setting(sm share.PerMille) Setting {
	return Setting{Resource: profile.Resource{SM: sm, Quota: share.Whole, Device: b.Device}, Batch: b.Batch}
}

func (b Bisection) validate() error {
	if b.Step < 1 || b.Step > share.Whole || share.Whole%b.Step != 0 {
		return share.Invalid("step", "%d per-mille does not divide %d", b.Step, share.Whole)
	}
	return checkBatch(b.Batch)
}
