// Package geometry plans how the instances of a GPU in MIG mode have to change when an instance is requested at a placement. An idle
// instance at that placement is reused, idle instances that overlap it are removed, and instances in use stay.
//
// FluidFaaS never changes instances at run time, as that takes minutes; changing idle ones takes seconds (U21).
package geometry

import (
	"fmt"

	"github.com/gshare-dev/gshare/vgpu/mig"
)

// Instance is an existing GPU instance, with whether it is ready, in use, or must not be removed.
type Instance struct {
	mig.Instance
	Ready bool // it has the compute instance that programs run on
	Used  bool // held by a container or busy: neither reused nor removed
	Fixed bool // may be reused, but not removed
}

// Action is what a Step does: create or destroy a GPU instance or its compute instance.
type Action string

// The actions. The driver removes a GPU instance only after its compute instances.
const (
	CreateGPU      Action = "create GPU instance"
	CreateCompute  Action = "create compute instance"
	DestroyCompute Action = "destroy compute instance"
	DestroyGPU     Action = "destroy GPU instance"
)

// Actions lists all values of Action.
var Actions = []Action{CreateGPU, CreateCompute, DestroyCompute, DestroyGPU}

// Step is one driver call that creates or destroys an instance. Its placement identifies the GPU instance, since no two existing instances
// overlap.
type Step struct {
	Action
	mig.Instance
}

// String returns the action, the profile and the placement, such as "create GPU instance 1g.10gb at 3".
func (s Step) String() string { return fmt.Sprintf("%s %s at %d", s.Action, s.Profile.Name, s.Start) }

// Plan returns the driver calls that make an instance exist at a placement, which the scheduler has chosen; none if the instance exists
// already. It returns false if the instance itself is in use, or is fixed and not ready, or if an overlapping one is in use or fixed.
//
// Idle instances that may be removed do not influence whether there is a plan, so a GPU accepts the same requests as if each were removed
// as soon as it became idle.
func Plan(now []Instance, at mig.Instance) (steps []Step, ok bool) {
	for _, i := range now {
		same := i.Instance == at
		if same && (i.Used || i.Fixed && !i.Ready) || !same && (i.Used || i.Fixed) && conflicts(i.Instance, at) {
			return nil, false
		}
	}
	return stepsTo(now, at), true
}

// stepsTo returns the driver calls that make an instance exist at a placement. No instance that is in use or fixed may conflict with it.
func stepsTo(now []Instance, at mig.Instance) (steps []Step) {
	creations := []Step{{CreateGPU, at}, {CreateCompute, at}}
	for _, i := range now {
		switch {
		case i.Instance == at && i.Ready:
			return nil
		case i.Instance == at:
			creations = creations[1:]
		case conflicts(i.Instance, at):
			steps = append(steps, RemovalSteps(i)...)
		}
	}
	return append(steps, creations...)
}

// RemovalSteps returns the driver calls that remove an idle instance.
func RemovalSteps(i Instance) []Step {
	if !i.Ready {
		return []Step{{DestroyGPU, i.Instance}}
	}
	return []Step{{DestroyCompute, i.Instance}, {DestroyGPU, i.Instance}}
}

// conflicts reports whether two instances cannot exist together because they overlap or both have the media engines.
func conflicts(i, at mig.Instance) bool { return !mig.Layout{}.With(i).Fits(at) }
