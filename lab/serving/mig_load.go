package serving

import (
	"errors"
	"slices"
	"time"

	"github.com/gshare-dev/gshare/vgpu/pipeline"
	"github.com/gshare-dev/gshare/vgpu/scaling"
)

// sample notes the load of the last second.
func (a *app) sample() {
	a.recent = append(a.recent, scaling.Rate(a.arrived))
	if len(a.recent) > loadsKept {
		a.recent = a.recent[1:]
	}
	a.arrived = 0
}

// Loads of so many seconds are kept, and of so many a trend is made.
const (
	loadsKept   = 60
	loadSamples = 10
)

// busy is the part of their time that instances are to be used at most.
const busy = 0.9

// short reports whether the instances do not suffice for the load that is expected, with what waits.
func (a *app) short() bool {
	return a.load() > busy*a.capacity(nil)
}

// enough reports whether the instances suffice without one. As long as nobody else wants its slices, they would have to have sufficed
// in each of the last seconds.
func (a *app) enough(without *chain) bool {
	load := a.load()
	if !a.world.scarce {
		load = float64(slices.Max(a.recent))
	}
	return load <= calm*a.capacity(without)
}

// calm is how busy those that remain may be when an instance goes: well below what brings it back.
const calm = 0.6

// load returns what is expected, in requests a second: with what waits and can still be in time.
func (a *app) load() float64 {
	return float64(scaling.MeanOrTrend(a.recent[max(0, len(a.recent)-loadSamples):])) + float64(a.waiting.live())/loadSamples
}

// capacity returns the requests a second that the instances serve. A shared one, if it is the only one, counts for as much as it may be
// used without being promoted.
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

// sharedUse is the part of a shared slice's time beyond which a function gets slices of its own (FF-41).
const sharedUse = 0.3

// add starts an instance on free slices, if there are any for it.
func (a *app) add() (bool, error) {
	w := a.world
	demand := pipeline.Demand{SLO: a.function.SLO, Candidates: w.policy.candidates}
	assign := a.ranking.Monolithic
	if w.policy.pipelines {
		assign = a.ranking.Assign
	}
	found, err := assign(w.free, demand)
	for noRoom(err) && w.reclaim() {
		found, err = assign(w.free, demand)
	}
	if a.full = noRoom(err); a.full {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	a.start(found, a.loadTime())
	return true, nil
}

// loadTime returns how long a further instance takes to load: from host memory where the data are there or on a shared slice.
func (a *app) loadTime() time.Duration {
	if a.world.node != nil && a.world.node.Residency(a.function.Name) != scaling.Cold {
		a.world.record.result.WarmStarts++
		return a.function.LoadWarm
	}
	a.world.record.result.ColdStarts++
	return a.function.LoadCold
}

func noRoom(err error) bool {
	return errors.Is(err, pipeline.ErrNoFit) || errors.Is(err, pipeline.ErrRate) || errors.Is(err, pipeline.ErrSLO)
}
