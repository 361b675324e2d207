package search

import (
	"github.com/gshare-dev/gshare/vgpu/profile"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// growthReplay replays a growth search over the recorded trials, up to the first setting that was not measured yet.
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

// doubleBatch doubles the batch, on the current SMs or on one step more, for as long as the SLO is met and the throughput per SM does not
// fall by more than maxLoss.
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

// probeFurther continues beyond the end of the search in Dilu's public code, which misses settings that need one more step of SMs: it
// tries the same batch with more SMs while that helps, or else the doubled batch with two more steps.
func (w *growthReplay) probeFurther() {
	end := *w.at
	for w.updateBest(w.trialMeetingSLO(w.at.Batch, w.at.Resource.SM+w.Step)) { // D27
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

// updateBest makes p the best setting if it has a higher throughput per SM. It reports whether it did.
func (w *growthReplay) updateBest(p *profile.Point) bool {
	if p == nil || Efficacy(*p) <= Efficacy(*w.best) {
		return false
	}
	w.best = p
	return true
}

// trialMeetingSLO returns the measurement of a setting if it meets the SLO, else nil. If the setting was not measured yet, it becomes the
// next one to measure.
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
