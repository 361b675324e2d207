package search

import (
	"fmt"
	"time"

	"github.com/gshare-dev/gshare/serving/rules/profile"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// Growth is a strategy that finds the best share for inference by Dilu's hybrid growth search (section 3.2). It adds a step of SMs
// until a setting meets the SLO; then it doubles the batch repeatedly, with one more step of SMs if the SLO is missed. It maximises the
// throughput per SM.
type Growth struct {
	SLO      time.Duration  // of a request; a batch may take half of it
	Step     share.PerMille // of SMs; 100 in the paper
	MaxBatch int
	Device   string

	// AsReleased ends the search where Dilu's code does (D27). Otherwise the search then adds SMs as long as that helps.
	AsReleased bool
}

// maxLoss is the loss of throughput per percent of SMs above which the growth search of Dilu's public code ends.
const maxLoss = 0.2

// Next returns the next setting of the growth search to measure, and false if the search has ended.
func (g Growth) Next(history []Trial) (Setting, bool, error) {
	_, next, err := g.search(history)
	return nextResult(next, err)
}

// GrowthResult is the result of Dilu's hybrid growth search: the most efficient measured setting of SMs and batch size, and the share to
// request. The share's request is the SMs of that setting; its limit is twice the request, but at most all SMs.
type GrowthResult struct {
	Point profile.Point
	Share share.Share
}

// Best returns the result of a completed search. It returns ErrNoSetting if no setting meets the SLO, ErrUnfinished, or a
// *share.FieldError.
func (g Growth) Best(history []Trial) (GrowthResult, error) {
	best, next, err := g.search(history)
	switch {
	case err != nil:
		return GrowthResult{}, err
	case next != nil:
		return GrowthResult{}, ErrUnfinished
	case best == nil:
		return GrowthResult{}, fmt.Errorf("%w: %w", ErrNoSetting, share.Invalid("slo", "%v: no share runs a batch of one within half of it", g.SLO))
	}
	sm := best.Resource.SM
	return GrowthResult{*best, elasticShare(sm, g.Limit(sm), best.Memory)}, nil
}

// Limit returns the most SMs that inference should get while others leave them idle: twice its request, but at most all SMs.
func (Growth) Limit(request share.PerMille) share.PerMille { return min(2*request, share.Whole) } // D26

// Efficacy returns the throughput per percent of SMs, batch / (t_exec x SM rate), which Dilu calls TE.
func Efficacy(p profile.Point) float64 {
	return float64(p.Batch) / p.Mean.Seconds() / (float64(p.Resource.SM) / 10)
}

func (g Growth) validate() error {
	switch {
	case g.SLO < 2:
		return share.Invalid("slo", "%v leaves no time for a batch", g.SLO)
	case g.Step < 1 || g.Step > share.Whole:
		return share.Invalid("step", "%d per-mille is outside 1 to %d", g.Step, share.Whole)
	}
	return checkBatch(g.MaxBatch)
}

func (g Growth) search(history []Trial) (best *profile.Point, next *Setting, err error) {
	tried, err := index(g, history)
	if err != nil {
		return nil, nil, err
	}
	w := growthReplay{Growth: g, tried: tried}
	w.run()
	return w.best, w.next, nil
}

// growthReplay replays a growth search over the recorded trials, up to the first setting that was not measured yet.
type growthReplay struct {
	Growth
	tried results
	at    *profile.Point // the last setting that met the SLO
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

// probeFurther continues where the search in Dilu's public code ends, which misses settings that need one more step of SMs: it tries
// the same batch with more SMs as long as that helps, or else the doubled batch with two more steps.
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
