package search

import (
	"github.com/gshare-dev/gshare/vgpu/profile"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// walk repeats a growth search over the trials that there are, up to the first that is missing.
type walk struct {
	Growth
	tried results
	at    *profile.Point // where the search stands
	best  *profile.Point
	next  *Setting // the missing trial
}

func (w *walk) run() {
	for sm := w.Step; w.at == nil && w.next == nil && sm <= share.Whole; sm += w.Step {
		w.at = w.keeps(1, sm)
	}
	if w.at == nil {
		return
	}
	w.best = w.at
	w.grow()
	if w.AsReleased {
		w.best = w.at
		return
	}
	w.probe()
}

// grow doubles the batch, at the SMs so far or one step more. It ends where neither keeps the SLO, and where the
// throughput per SM falls by more than is tolerated.
func (w *walk) grow() {
	for {
		batch, sm := 2*w.at.Batch, w.at.Resource.SM
		p := w.keeps(batch, sm)
		if p == nil {
			p = w.keeps(batch, sm+w.Step)
		}
		if p == nil || Efficacy(*p) < Efficacy(*w.at)-tolerated {
			return
		}
		w.at = p
		w.improve(p)
	}
}

// probe looks past the end of the search as released, which passes by settings that need a step more of SMs (D27): the
// same batch with more SMs, as long as that helps, or else the doubled batch with two steps more.
func (w *walk) probe() {
	end := *w.at
	for w.improve(w.keeps(w.at.Batch, w.at.Resource.SM+w.Step)) {
		w.at = w.best
	}
	if w.next != nil || w.at.Resource != end.Resource {
		return
	}
	if w.improve(w.keeps(2*end.Batch, end.Resource.SM+2*w.Step)) {
		w.at = w.best
		w.grow()
	}
}

// improve takes a setting that serves more per SM than all before, if there is one.
func (w *walk) improve(p *profile.Point) bool {
	if p == nil || Efficacy(*p) <= Efficacy(*w.best) {
		return false
	}
	w.best = p
	return true
}

// keeps returns the trial of a setting if it keeps the SLO. A setting without a trial is the next to measure.
func (w *walk) keeps(batch int, sm share.PerMille) *profile.Point {
	if batch > w.MaxBatch || sm > share.Whole || w.next != nil {
		return nil
	}
	s := Setting{Resource: profile.Resource{SM: sm, Quota: share.Whole, Device: w.Device}, Batch: batch}
	trial, tried := w.tried[s]
	switch {
	case !tried:
		w.next = &s
		return nil
	case trial.Failed || trial.Point.Mean > w.SLO/2:
		return nil
	}
	return &trial.Point
}
