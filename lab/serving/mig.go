package serving

import (
	"fmt"
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
