package serving

import (
	"errors"
	"slices"
	"time"

	"github.com/gshare-dev/gshare/serving/rules/pipeline"
	"github.com/gshare-dev/gshare/serving/rules/scaling"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// recordRate appends the request rate of the last second to the load history of the function.
func (a *migFunction) recordRate() {
	a.recent = append(a.recent, scaling.Rate(a.arrived))
	if len(a.recent) > loadsKept {
		a.recent = a.recent[1:]
	}
	a.arrived = 0
}

// loadsKept is the length of the load history in seconds. loadSamples is how many of its latest samples the forecast uses.
const (
	loadsKept   = 60
	loadSamples = 10
)

// maxUtilisation is the utilisation of a function's instances above which another one is added.
const maxUtilisation = 0.9

// needsInstances reports whether the function has too few instances for the expected load.
func (a *migFunction) needsInstances() bool {
	return a.expectedLoad() > maxUtilisation*a.capacity(nil)
}

// canSpare reports whether the function's other instances suffice without the given one. While no function lacks slices, they must
// suffice for the peak load of the history.
func (a *migFunction) canSpare(without *migInstance) bool {
	load := a.expectedLoad()
	if !a.sim.scarce {
		load = float64(slices.Max(a.recent))
	}
	return load <= scaleInUtilisation*a.capacity(without)
}

// scaleInUtilisation is the highest utilisation that the remaining instances may have when an instance is removed. It is well below
// maxUtilisation, so that the instance is not added again at once.
const scaleInUtilisation = 0.6

// expectedLoad returns the expected load in requests a second, including the queued requests that can still meet their SLO.
func (a *migFunction) expectedLoad() float64 {
	return float64(scaling.MeanOrTrend(a.recent[max(0, len(a.recent)-loadSamples):])) + float64(a.waiting.liveCount())/loadSamples
}

// capacity returns the requests per second that the function's instances can serve, not counting the given one. For a function without
// instances it returns a value with which the function gets slices of its own at the same utilisation of a shared slice at which package
// residency promotes an instance (U10).
func (a *migFunction) capacity(without *migInstance) float64 {
	capacity := 0.0
	for _, c := range a.instances {
		if !c.leaving && c != without {
			capacity += c.assignment.Rate()
		}
	}
	if capacity == 0 && a.fastest > 0 {
		capacity = float64(thresholds.Up) / float64(share.Whole) / maxUtilisation / a.fastest.Seconds()
	}
	return capacity
}

// addInstance starts an instance on free slices. It returns false if none fit.
func (a *migFunction) addInstance() (bool, error) {
	w := a.sim
	demand := pipeline.Demand{SLO: a.function.SLO, Candidates: w.policy.candidates}
	assign := a.ranking.Monolithic
	if w.policy.pipelines {
		assign = a.ranking.Assign
	}
	found, err := assign(w.free, demand)
	for doesNotFit(err) && w.reclaimSharedSlice() {
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

// loadTime returns how long another instance of the function takes to load: LoadWarm if the model data is in host memory or on a shared
// slice, otherwise LoadCold. It counts the start as warm or cold in the result.
func (a *migFunction) loadTime() time.Duration {
	if a.sim.node != nil && a.sim.node.Residency(a.function.Name) != scaling.Cold {
		a.sim.record.result.WarmStarts++
		return a.function.LoadWarm
	}
	a.sim.record.result.ColdStarts++
	return a.function.LoadCold
}

func doesNotFit(err error) bool {
	return errors.Is(err, pipeline.ErrNoFit) || errors.Is(err, pipeline.ErrRate) || errors.Is(err, pipeline.ErrSLO)
}
