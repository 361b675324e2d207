package serving

import (
	"errors"
	"slices"
	"time"

	"github.com/gshare-dev/gshare/vgpu/pipeline"
	"github.com/gshare-dev/gshare/vgpu/scaling"
)

// sample appends the request rate of the last second to the history.
func (a *app) sample() {
	a.recent = append(a.recent, scaling.Rate(a.arrived))
	if len(a.recent) > loadsKept {
		a.recent = a.recent[1:]
	}
	a.arrived = 0
}

// loadsKept is the length of the load history in seconds; loadSamples is how many of the latest the forecast uses.
const (
	loadsKept   = 60
	loadSamples = 10
)

// maxUtilisation is the utilisation of the instances above which another one is added.
const maxUtilisation = 0.9

// short reports whether the instances are too few for the expected load, including the queued requests.
func (a *app) short() bool {
	return a.load() > maxUtilisation*a.capacity(nil)
}

// enough reports whether the other instances suffice without the given one. While no function lacks slices, they must
// suffice for the peak load of the history.
func (a *app) enough(without *chain) bool {
	load := a.load()
	if !a.world.scarce {
		load = float64(slices.Max(a.recent))
	}
	return load <= scaleInUtilisation*a.capacity(without)
}

// scaleInUtilisation is the highest utilisation of the remaining instances at which one is removed. It is well below
// maxUtilisation so that the instance is not added again at once.
const scaleInUtilisation = 0.6

// load returns the expected load in requests a second, including the queued requests that can still meet their SLO.
func (a *app) load() float64 {
	return float64(scaling.MeanOrTrend(a.recent[max(0, len(a.recent)-loadSamples):])) + float64(a.waiting.live())/loadSamples
}

// capacity returns the requests a second that the instances can serve, without the given one. If the function has none, it
// is the load on the shared slices below which it gets no slices of its own.
func (a *app) capacity(without *chain) float64 {
	capacity := 0.0
	for _, c := range a.chains {
		if !c.leaving && c != without {
			capacity += c.assignment.Rate()
		}
	}
	if capacity == 0 && a.fastest > 0 {
		capacity = sharedUse / a.fastest.Seconds()
	}
	return capacity
}

// sharedUse is the utilisation of a shared slice above which a function gets slices of its own (FF-41).
const sharedUse = 0.3

// add starts an instance on free slices. It reports false if none fits.
func (a *app) add() (bool, error) {
	w := a.world
	demand := pipeline.Demand{SLO: a.function.SLO, Candidates: w.policy.candidates}
	assign := a.ranking.Monolithic
	if w.policy.pipelines {
		assign = a.ranking.Assign
	}
	found, err := assign(w.free, demand)
	for doesNotFit(err) && w.reclaim() {
		found, err = assign(w.free, demand)
	}
	if a.full = doesNotFit(err); a.full {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	a.start(found, a.loadTime())
	return true, nil
}

// loadTime returns how long another instance takes to load: LoadWarm if the model data are in host memory or on a shared
// slice, else LoadCold. It counts the start as warm or cold.
func (a *app) loadTime() time.Duration {
	if a.world.node != nil && a.world.node.Residency(a.function.Name) != scaling.Cold {
		a.world.record.result.WarmStarts++
		return a.function.LoadWarm
	}
	a.world.record.result.ColdStarts++
	return a.function.LoadCold
}

func doesNotFit(err error) bool {
	return errors.Is(err, pipeline.ErrNoFit) || errors.Is(err, pipeline.ErrRate) || errors.Is(err, pipeline.ErrSLO)
}
