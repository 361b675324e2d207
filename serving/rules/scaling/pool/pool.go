// Package pool maps the autoscaler's decisions to existing instances of a function: it decides which instance starts, is promoted, demoted
// or stopped, and in which order.
//
// Package scaling says how many instances a function has and with which configurations. It does not know whether an instance has failed, is
// still starting, or is in use. Nor does it know of surplus instances: those that are kept although the autoscaler no longer counts them.
// They are the first to be counted again, and the first to make room.
//
// All functions are pure. A caller asks for the next step, carries it out, and asks again until there is none. Each time it passes the
// instances that it finds, so that a caller restarted in between continues, and no step is done twice. If there is no room for a step, the
// caller gives it up by removing the instance from the autoscaler's state; the autoscaler then asks for it again.
package pool

import (
	"cmp"
	"slices"
	"time"

	"github.com/gshare-dev/gshare/serving/rules/scaling"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// Phase is where an instance is in its life cycle.
type Phase string

// The phases. A failed instance is one that its platform has not given up: it will start again in the same place. A draining
// instance gets no more requests and is stopped afterwards; for this package it no longer exists.
const (
	Starting Phase = "starting"
	Ready    Phase = "ready"
	Failed   Phase = "failed"
	Draining Phase = "draining"
)

// Instance is the observed state of one instance of a function. Times count from the same fixed time as those of package scaling.
type Instance struct {
	ID            scaling.ID // unique in the function; surplus instances keep theirs
	Configuration scaling.Configuration
	Phase         Phase
	Residency     scaling.Residency // Hot, Shared or Warm
	Since         time.Duration     // when the residency began
	LastUsed      time.Duration     // when it last had a request
	Busy          bool              // has requests now
	Utilisation   share.PerMille    // of its share; used by Review
}

// exists reports whether the instance is there and, unless a step changes it, stays.
func (i *Instance) exists() bool { return i.Phase != Draining }

// loaded reports whether the instance serves, or will serve once it has started.
func (i *Instance) loaded() bool { return i.exists() && i.Residency <= scaling.Shared }

// Verb is the kind of a Step.
type Verb string

// The kinds of steps.
const (
	Start   Verb = "start"   // a new instance
	Adopt   Verb = "adopt"   // let an existing instance take the place of one in the autoscaler's state, without changing the existing one
	Promote Verb = "promote" // to Hot or Shared
	Demote  Verb = "demote"  // to Shared or Warm, as soon as it has started
	Stop    Verb = "stop"
)

// Step is one change of a function's instances.
type Step struct {
	Do Verb
	At int // index of the instance; -1 for Start

	// For is an ID in the autoscaler's state. Start creates an instance for this ID, or for none if it is 0. Adopt replaces the ID
	// with the ID and the configuration of an existing instance (scaling.State.Replace).
	For scaling.ID

	Configuration scaling.Configuration // of the instance; for Start, the one to create it with
	To            scaling.Residency     // residency after the step: Hot, Shared or (once it is ready) Warm for Start, Cold for Stop
}

// Policy determines what happens to a function's surplus instances. The zero value stops them all.
type Policy struct {
	// Retain keeps surplus instances: one of them Shared, on the device, and the others Warm.
	Retain bool

	// Warm is the least number of instances, whatever their residency: a function without load has this many Warm ones. They are created
	// with the configuration WarmAs.
	Warm   int
	WarmAs scaling.Configuration

	// Residency holds the thresholds that Review applies.
	Residency Thresholds
}

// Next returns the next step, and false if there is none. want holds the instances that the autoscaler counts, and have those that exist or
// are being drained, both in any order. The step assumes that nothing else changes want or have.
//
// Missing instances come first: each is replaced by a surplus instance that is loaded, or else by the surplus instance that has been Warm
// for the shortest time, or else by a new one. Then surplus instances are demoted or stopped. A surplus instance first changes places with
// a counted one of the same configuration if that is a better victim: because it has failed, is still starting, is Shared, or has been idle
// longer.
func (p Policy) Next(want []scaling.Instance, have []Instance) (Step, bool) {
	r := round{policy: p, want: want, have: have}
	if len(want)+len(have) > many {
		r.index()
	}
	for _, rule := range []func() (Step, bool){r.restore, r.fill, r.shrink, r.keepWarm} {
		if step, ok := rule(); ok {
			return step, true
		}
	}
	return Step{}, false
}

// round is one call of Policy.Next.
type round struct {
	policy Policy
	want   []scaling.Instance
	have   []Instance

	wanted, there map[scaling.ID]bool // IDs of want, and of the instances of have that exist; nil if there are few
}

// many is the number of instances above which round looks them up in maps by ID: a caller asks for about as many steps as there are instances, and each
// step looks at all of them.
const many = 32

func (r *round) index() {
	r.wanted, r.there = make(map[scaling.ID]bool, len(r.want)), make(map[scaling.ID]bool, len(r.have))
	for at := range r.want {
		r.wanted[r.want[at].ID] = true
	}
	for at := range r.have {
		if i := &r.have[at]; i.exists() {
			r.there[i.ID] = true
		}
	}
}

// isThere reports whether an instance with the given ID exists.
func (r *round) isThere(id scaling.ID) bool {
	if r.there != nil {
		return r.there[id]
	}
	return slices.ContainsFunc(r.have, func(i Instance) bool { return i.exists() && i.ID == id })
}

// fill finds an instance for the first one in want that does not exist.
func (r *round) fill() (Step, bool) {
	for _, w := range r.want {
		if r.isThere(w.ID) {
			continue
		}
		if at := r.replacement(); at >= 0 {
			return r.step(Adopt, at, r.have[at].Residency, w.ID), true
		}
		return Step{Do: Start, At: -1, For: w.ID, Configuration: w.Configuration, To: r.first(-1)}, true
	}
	return Step{}, false
}

// replacement returns the index of the surplus instance that takes the place of a missing one, or -1.
func (r *round) replacement() int {
	best := -1
	for at := range r.have {
		i := &r.have[at]
		switch {
		case !i.exists() || i.Phase == Failed || r.counted(i.ID):
		case i.loaded():
			return at
		case best < 0 || i.Since >= r.have[best].Since:
			best = at
		}
	}
	return best
}

// restore promotes the first counted instance that is Warm.
func (r *round) restore() (Step, bool) {
	for at := range r.have {
		if i := &r.have[at]; i.exists() && i.Residency == scaling.Warm && r.counted(i.ID) {
			return r.step(Promote, at, r.first(at), 0), true
		}
	}
	return Step{}, false
}

// first returns the residency in which an instance begins to serve: Shared if surplus instances are kept and no other one is Shared.
func (r *round) first(at int) scaling.Residency {
	if r.policy.Retain && !anotherShared(r.have, at) {
		return scaling.Shared
	}
	return scaling.Hot
}

// shrink demotes or stops the best victim of the surplus instances.
func (r *round) shrink() (Step, bool) {
	for _, at := range r.surplus() {
		step, ok := r.retire(at)
		if !ok {
			continue
		}
		if other := r.exchange(at); other >= 0 {
			return r.step(Adopt, at, r.have[at].Residency, r.have[other].ID), true
		}
		return step, true
	}
	return Step{}, false
}

// surplus returns the indices of the loaded and the failed instances that are not counted, the best victim first.
func (r *round) surplus() []int {
	var found []int
	for at := range r.have {
		if i := &r.have[at]; i.exists() && !r.counted(i.ID) && (i.loaded() || i.Phase == Failed) {
			found = append(found, at)
		}
	}
	slices.SortFunc(found, func(a, b int) int { return compareVictims(&r.have[a], &r.have[b]) })
	return found
}

// retire returns the step that demotes or stops a surplus instance, and false if it stays as it is.
func (r *round) retire(at int) (Step, bool) {
	i := &r.have[at]
	switch keep := r.policy.Retain || r.size() <= r.policy.Warm; {
	case i.Phase == Failed || !keep:
		return r.step(Stop, at, scaling.Cold, 0), true
	case !r.policy.Retain || anotherShared(r.have, at):
		return r.step(Demote, at, scaling.Warm, 0), true
	case i.Residency == scaling.Hot:
		return r.step(Demote, at, scaling.Shared, 0), true
	}
	return Step{}, false
}

// exchange returns the index of the best victim among the counted instances with the configuration of the given surplus instance, or -1
// if none is a better victim than that instance.
func (r *round) exchange(at int) int {
	best := at
	for other := range r.have {
		i := &r.have[other]
		if i.loaded() && r.counted(i.ID) && i.Configuration == r.have[at].Configuration && compareVictims(i, &r.have[best]) < 0 {
			best = other
		}
	}
	if best == at {
		return -1
	}
	return best
}

// keepWarm starts an instance if there are fewer than the warm minimum.
func (r *round) keepWarm() (Step, bool) {
	if r.size() >= r.policy.Warm {
		return Step{}, false
	}
	return Step{Do: Start, At: -1, Configuration: r.policy.WarmAs, To: scaling.Warm}, true
}

// size returns the number of instances that exist, without those that have failed.
func (r *round) size() int { return size(r.have) }

func (r *round) counted(id scaling.ID) bool {
	if r.wanted != nil {
		return r.wanted[id]
	}
	return contains(r.want, id)
}

func (r *round) step(do Verb, at int, to scaling.Residency, id scaling.ID) Step {
	return Step{Do: do, At: at, For: id, Configuration: r.have[at].Configuration, To: to}
}

func size(have []Instance) int {
	n := 0
	for at := range have {
		if have[at].exists() && have[at].Phase != Failed {
			n++
		}
	}
	return n
}

func contains(want []scaling.Instance, id scaling.ID) bool {
	return slices.ContainsFunc(want, func(w scaling.Instance) bool { return w.ID == id })
}

// anotherShared reports whether an instance other than the one at the index is Shared.
func anotherShared(have []Instance, at int) bool {
	for other := range have {
		if other != at && have[other].exists() && have[other].Residency == scaling.Shared {
			return true
		}
	}
	return false
}

// compareVictims orders instances by how little is lost without them: failed before starting ones, and these before ready ones; then
// Shared before Hot, less efficient before more efficient, longer idle before recently used, and younger before older.
func compareVictims(a, b *Instance) int {
	return cmp.Or(
		cmp.Compare(readiness(a), readiness(b)),
		cmp.Compare(b.Residency, a.Residency),
		cmp.Compare(a.Configuration.PerResource(), b.Configuration.PerResource()),
		cmp.Compare(a.LastUsed, b.LastUsed),
		cmp.Compare(b.ID, a.ID),
	)
}

func readiness(i *Instance) int { return slices.Index([]Phase{Failed, Starting, Ready}, i.Phase) }
