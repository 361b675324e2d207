package search

import (
	"github.com/gshare-dev/gshare/vgpu/profile"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// walk replays a growth search over the recorded trials, up to the first that is missing.
type growthReplay struct {
	Growth
	tried results
	at    *profile.Point // where the search stands
	best  *profile.Point
	next  *Setting // the missing trial
}

func (w *growthReplay) run() {
	for sm := w.Step; w.at == nil && w.next == nil && sm <= share.Whole; sm += w.Step {
		w.at = w.trialMeetingSLO(1, sm)
	}
	if w.at == nil {
		return
	}
	w.best = w.at
	w.doubleBatch()
	if w.AsReleased {
		w.best = w.at
		return
	}
	w.probeFurther()
}

// grow doubles the batch, on the current SMs or one step more. It ends where neither meets the SLO, or where the throughput
// per SM falls by more than maxLoss.
func (w *growthReplay) doubleBatch() {
	for {
		batch, sm := 2*w.at.Batch, w.at.Resource.SM
		p := w.trialMeetingSLO(batch, sm)
		if p == nil {
			p = w.trialMeetingSLO(batch, sm+w.Step)
		}
		if p == nil || Efficacy(*p) < Efficacy(*w.at)-maxLoss {
			return
		}
		w.at = p
		w.updateBest(p)
	}
}

// probe continues beyond the end of the search as released, which misses settings that need one more step of SMs (D27): the
// same batch with more SMs while that helps, or else the doubled batch with two more steps.
func (w *growthReplay) probeFurther() {
	end := *w.at
	for w.updateBest(w.trialMeetingSLO(w.at.Batch, w.at.Resource.SM+w.Step)) {
		w.at = w.best
	}
	if w.next != nil || w.at.Resource != end.Resource {
		return
	}
	if w.updateBest(w.trialMeetingSLO(2*end.Batch, end.Resource.SM+2*w.Step)) {
		w.at = w.best
		w.doubleBatch()
	}
}

// improve updates the best setting if p has a higher throughput per SM. It reports whether it did.
func (w *growthReplay) updateBest(p *profile.Point) bool {
	if p == nil || Efficacy(*p) <= Efficacy(*w.best) {
		return false
	}
	w.best = p
	return true
}

// meetsSLO returns the trial of a setting if it meets the SLO, else nil. If the setting has no trial, it becomes the next to
// measure.
func (w *growthReplay) trialMeetingSLO(batch int, sm share.PerMille) *profile.Point {
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
