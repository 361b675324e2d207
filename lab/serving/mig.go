package serving

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/gshare-dev/gshare/lab/serving/residency"
	"github.com/gshare-dev/gshare/serving/rules/pipeline"
	"github.com/gshare-dev/gshare/serving/rules/profile"
	"github.com/gshare-dev/gshare/serving/rules/scaling"
	"github.com/gshare-dev/gshare/serving/rules/scaling/pool"
)

// migSimulation simulates functions on MIG instances of fixed sizes under one policy. It has many fields because it is the whole state of
// the simulated node.
type migSimulation struct {
	clock     *clock
	record    *record
	until     time.Duration
	policy    migPolicy
	free      []pipeline.Slice
	gpus      map[string]*gpuActivity // by slice
	use       *sliceUse
	functions []*migFunction
	node      *residency.Node // the slices that functions share in turn; nil if the policy shares none
	shared    map[string]pipeline.Slice
	ids       int
	err       error
	scarce    bool // some function lacks slices
}

// migPolicy holds the settings in which the policies on MIG instances differ.
type migPolicy struct {
	pipelines    bool // functions may be split, slices shared in turn, and pipelines migrated
	refuses      bool // requests that cannot be in time are refused instead of served after all others
	consolidates bool // as long as slices are not scarce, requests go to GPUs that are already working
	candidates   int  // number of fitting partitions from which the best is chosen
}

// keepAlive is the time after which policies that do not share slices remove an unused instance with slices of its own. The value is
// that of FluidFaaS.
const keepAlive = 10 * time.Minute

func newMIGSimulation(in *Input, c *clock, r *record, p migPolicy) (*migSimulation, error) {
	kinds, err := in.validateMIG()
	if err != nil {
		return nil, err
	}
	w := &migSimulation{clock: c, record: r, until: in.Until, policy: p, gpus: map[string]*gpuActivity{}, shared: map[string]pipeline.Slice{}}
	for g, names := range in.MIG.GPUs {
		work := &gpuActivity{clock: c, until: in.Until}
		for i, name := range names {
			s := pipeline.Slice{ID: fmt.Sprintf("%d/%d", g, i), Kind: kinds[name]}
			w.free, w.gpus[s.ID] = append(w.free, s), work
		}
	}
	w.use = newSliceUse(in, w.free)
	if p.pipelines {
		if w.node, err = residency.New(residency.Policy{Host: hostMemory}); err != nil {
			return nil, err
		}
	}
	for i := range in.Functions {
		a, err := w.newFunction(&in.Functions[i], kindsOf(w.free))
		if err != nil {
			return nil, profile.WithinField(fmt.Sprintf("functions[%d]", i), err)
		}
		w.functions = append(w.functions, a)
	}
	return w, nil
}

// hostMemory is the host memory in bytes in which a node keeps evicted model data.
const hostMemory = 256 << 30

func kindsOf(all []pipeline.Slice) []pipeline.Kind {
	var kinds []pipeline.Kind
	for _, s := range all {
		if !slices.Contains(kinds, s.Kind) {
			kinds = append(kinds, s.Kind)
		}
	}
	return kinds
}

func (w *migSimulation) arrive(request int32) {
	a := w.functions[w.record.arrivals[request].Function]
	a.arrived++
	a.waiting.add(request)
	a.dispatch()
}

// everySecond adds and removes instances according to load, and applies the decisions of package residency about the shared slices. It
// runs once a simulated second.
func (w *migSimulation) everySecond() error {
	w.use.report(w.clock.now)
	for _, a := range w.functions {
		a.recordRate()
	}
	for _, step := range []func() error{w.removeUnneeded, w.addInstances, w.updateScarcity, w.resizeSharedPool, w.migratePipelines} {
		if err := step(); err != nil {
			return err
		}
	}
	w.use.occupy(w.free)
	for _, a := range w.functions {
		a.dispatch()
	}
	w.startShared()
	return w.err
}

// addInstances adds instances, one function after another, until every function has enough or no slices are left.
func (w *migSimulation) addInstances() error {
	for again := true; again; {
		again = false
		for _, a := range w.functions {
			if !a.needsInstances() {
				continue
			}
			added, err := a.addInstance()
			if err != nil {
				return err
			}
			again = again || added
		}
	}
	return nil
}

// updateScarcity records whether some function lacks slices, so that other functions release theirs earlier.
func (w *migSimulation) updateScarcity() error {
	w.scarce = slices.ContainsFunc(w.functions, func(a *migFunction) bool { return a.full && a.needsInstances() })
	return nil
}

// removeUnneeded removes the instances whose load does not justify slices of their own.
func (w *migSimulation) removeUnneeded() error {
	now := w.clock.now
	for _, a := range w.functions {
		for _, c := range slices.Clone(a.instances) {
			if !c.ready || c.leaving || c.outstanding > 0 && !w.policy.pipelines {
				continue
			}
			idle := now-c.lastUsed >= keepAlive
			if w.policy.pipelines {
				standing := &pool.Instance{Residency: scaling.Hot, Since: c.since, Utilisation: c.use.Utilisation(now, useWindow)}
				idle = thresholds.Next(now, standing) != scaling.Hot
			}
			if idle && a.canSpare(c) {
				c.retire()
			}
		}
	}
	return nil
}

func (w *migSimulation) finish(prices *priceList, r *Result) {
	gpus := map[*gpuActivity]bool{}
	for _, g := range w.gpus {
		if !gpus[g] {
			gpus[g] = true
			r.GPUSeconds += g.total()
		}
	}
	r.MIGSeconds = w.use.busy
	r.Cost = prices.price(r.GPUSeconds, 0)
}

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
