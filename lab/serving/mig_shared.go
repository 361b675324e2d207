package serving

import (
	"cmp"
	"maps"
	"slices"

	"github.com/gshare-dev/gshare/lab/serving/residency"
	"github.com/gshare-dev/gshare/serving/rules/pipeline"
)

// startShared starts the requests that package residency dispatches now to slices that functions share in turn.
func (w *migSimulation) startShared() {
	if w.node == nil {
		return
	}
	d := w.node.Dispatch(w.clock.now)
	for _, r := range d.Refused {
		w.record.refuse(int32(r.ID))
	}
	for _, s := range d.Starts {
		switch s.Source {
		case residency.Host:
			w.record.result.WarmStarts++
		case residency.Storage:
			w.record.result.ColdStarts++
		}
		w.countWork(s.Slice, w.clock.now+s.Load, s.Execution)
		w.clock.after(s.Load+s.Execution, func() {
			w.record.answer(int32(s.Request.ID), w.clock.now)
			w.record.split(int32(s.Request.ID), w.clock.now, s.Load, 0, s.Execution)
			w.recordError(w.node.Finish(w.clock.now, s.Slice))
			w.functionNamed(s.Request.Function).dispatch()
			w.startShared()
		})
	}
}

// recordError keeps the first error of an event, for everySecond to return.
func (w *migSimulation) recordError(err error) { w.err = cmp.Or(w.err, err) }

func (w *migSimulation) functionNamed(name string) *migFunction {
	return w.functions[slices.IndexFunc(w.functions, func(a *migFunction) bool { return a.function.Name == name })]
}

// resizeSharedPool adds and removes shared slices as package residency advises, as far as free slices allow.
func (w *migSimulation) resizeSharedPool() error {
	if w.node == nil {
		return nil
	}
	for _, advice := range w.node.Review(w.clock.now) {
		switch advice.Action {
		case residency.Promote:
			w.functionNamed(advice.Function).leaveShared()
		case residency.End:
			w.functionNamed(advice.Function).sharing = false
		case residency.Grow:
			if err := w.addSharedSlice(advice.Function); err != nil {
				return err
			}
		case residency.Shrink:
			if err := w.node.RemoveSlice(w.clock.now, advice.Slice); err != nil {
				return err
			}
			w.unshare(advice.Slice)
		}
	}
	return nil
}

// leaveShared ends the function's instance on the shared slices, once it has instances with slices of their own and lacks none.
func (a *migFunction) leaveShared() {
	if a.full || a.fastestReady() == 0 {
		return
	}
	a.sharing = false
	for _, r := range a.sim.node.RemovePromoted(a.sim.clock.now, a.function.Name) {
		a.waiting.putBack(int32(r.ID))
	}
}

// reclaimSharedSlice takes one idle slice from the shared ones, for an instance that needs slices of its own. It reports whether there
// was one.
func (w *migSimulation) reclaimSharedSlice() bool {
	for _, id := range slices.Sorted(maps.Keys(w.shared)) {
		if w.node.RemoveSlice(w.clock.now, id) == nil {
			w.unshare(id)
			return true
		}
	}
	return false
}

func (w *migSimulation) unshare(id string) {
	w.free = append(w.free, w.shared[id])
	delete(w.shared, id)
}

// addSharedSlice moves the smallest free slice on which the function runs to the shared slices; if the name is empty, any function
// counts. It does nothing if there is none.
func (w *migSimulation) addSharedSlice(function string) error {
	best := -1
	for i, s := range w.free {
		runs := false
		for _, a := range w.functions {
			if function == "" || a.function.Name == function {
				t := a.function.Graph.Whole()
				runs = runs || t.Times[s.Kind.Name] > 0 && t.Memory <= s.Kind.Memory && t.Times[s.Kind.Name] <= a.function.SLO
			}
		}
		if runs && (best < 0 || s.Kind.Compute < w.free[best].Kind.Compute) {
			best = i
		}
	}
	if best < 0 {
		return nil
	}
	s := w.free[best]
	w.free = slices.Delete(w.free, best, best+1)
	w.shared[s.ID] = s
	return w.node.AddSlice(w.clock.now, s)
}

// migratePipelines replaces pipelines by instances on free single slices.
func (w *migSimulation) migratePipelines() error {
	if !w.policy.pipelines {
		return nil
	}
	var running []pipeline.RunningInstance
	chains := map[int]*migInstance{}
	for _, a := range w.functions {
		for _, c := range a.instances {
			if c.ready && !c.leaving && !slices.ContainsFunc(a.instances, func(o *migInstance) bool { return o.replaces == c }) {
				running = append(running, pipeline.RunningInstance{ID: c.id, Ranking: a.ranking, Assignment: c.assignment, Demand: c.demand()})
				chains[c.id] = c
			}
		}
	}
	moves, err := pipeline.Migrations(running, w.free)
	if err != nil {
		return err
	}
	for _, m := range moves {
		old := chains[m.Instance]
		old.function.start(m.To, old.function.loadTime()).replaces = old
	}
	return nil
}

// demand returns the SLO and the current request rate of the instance.
func (c *migInstance) demand() pipeline.Demand {
	part := float64(c.use.Utilisation(c.function.sim.clock.now, useWindow)) / 1000
	return pipeline.Demand{SLO: c.function.function.SLO, Rate: part * c.assignment.Rate()}
}
