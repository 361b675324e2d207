package search

import (
	"fmt"
	"time"

	"github.com/gshare-dev/gshare/vgpu/profile"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// Growth is a strategy that finds the best share for inference by Dilu's hybrid growth search (section 3.2). SMs grow by a step until a
// setting meets the SLO; then the batch doubles, with one more step of SMs where the SLO is missed. It maximises the throughput per SM.
type Growth struct {
	SLO      time.Duration  // of a request; a batch may take half of it (DI-18)
	Step     share.PerMille // of SMs; 100 in the paper
	MaxBatch int
	Device   string

	// AsReleased stops where Dilu's code does (D27). Otherwise SMs grow once more before the end, as long as that helps.
	AsReleased bool
}

// maxLoss is the loss of throughput per percent of SMs above which the growth search of Dilu's public code ends.
const maxLoss = 0.2

// Next returns the next setting to measure.
func (g Growth) Next(history []Trial) (Setting, bool, error) {
	_, next, err := g.search(history)
	if err != nil || next == nil {
		return Setting{}, false, err
	}
	return *next, true, nil
}

// GrowthResult is the result of a growth search: the best setting, and the share to request. The request is that setting's SMs and the
// limit twice as many, at most all.
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
	return GrowthResult{*best, elasticShare(sm, min(2*sm, share.Whole), best.Memory)}, nil // D26
}

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
	if err := g.validate(); err != nil {
		return nil, nil, err
	}
	tried, err := index(history)
	if err != nil {
		return nil, nil, err
	}
	w := growthReplay{Growth: g, tried: tried}
	w.run()
	return w.best, w.next, nil
}
