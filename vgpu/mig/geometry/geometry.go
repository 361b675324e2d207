// Package geometry plans how the instances of a GPU in MIG mode change when one is requested at a placement: an idle instance there is reused,
// and others are removed only if they overlap it. Instances in use stay.
//
// FluidFaaS never changes instances at run time (FF-38), as that takes minutes; of idle ones it takes seconds (U21).
package geometry

import (
	"fmt"

	"github.com/gshare-dev/gshare/vgpu/mig"
)

// Instance is a GPU instance that exists.
type Instance struct {
	mig.Instance
	Ready bool // has the compute instance that programs run on
	Used  bool // held by a container or busy: neither reused nor removed
	Fixed bool // may be reused, but not removed
}

// Action is what a step does.
type Action string

// The actions. The driver removes a GPU instance only when its compute instances are gone.
const (
	CreateGPU      Action = "create GPU instance"
	CreateCompute  Action = "create compute instance"
	DestroyCompute Action = "destroy compute instance"
	DestroyGPU     Action = "destroy GPU instance"
)

// Actions are all actions.
var Actions = []Action{CreateGPU, CreateCompute, DestroyCompute, DestroyGPU}

// Step is one call of the driver. The placement identifies the GPU instance, since no two that exist overlap.
type Step struct {
	Action
	mig.Instance
}

// String returns the action and the instance, such as "create GPU instance 1g.10gb at 3".
func (s Step) String() string { return fmt.Sprintf("%s %s at %d", s.Action, s.Profile.Name, s.Start) }

// Plan returns the steps that lead to an instance at a placement, which the scheduler has chosen: none if it exists. It returns false if
// instances that stay are in the way, or the instance itself is in use.
//
// Idle instances do not influence the answer, so that a GPU accepts what it would if they were removed as soon as they become idle.
func Plan(now []Instance, at mig.Instance) (steps []Step, ok bool) {
	for _, i := range now {
		same := i.Instance == at
		if same && (i.Used || i.Fixed && !i.Ready) || !same && (i.Used || i.Fixed) && conflict(i.Instance, at) {
			return nil, false
		}
	}
	return stepsTo(now, at), true
}

// stepsTo returns the steps to an instance at a placement that no instance in use or fixed conflicts with.
func stepsTo(now []Instance, at mig.Instance) (steps []Step) {
	creations := []Step{{CreateGPU, at}, {CreateCompute, at}}
	for _, i := range now {
		switch {
		case i.Instance == at && i.Ready:
			return nil
		case i.Instance == at:
			creations = creations[1:]
		case conflict(i.Instance, at):
			steps = append(steps, Removal(i)...)
		}
	}
	return append(steps, creations...)
}

// Removal returns the steps that remove an idle instance.
func Removal(i Instance) []Step {
	if !i.Ready {
		return []Step{{DestroyGPU, i.Instance}}
	}
	return []Step{{DestroyCompute, i.Instance}, {DestroyGPU, i.Instance}}
}

// conflict reports whether two instances cannot exist together: they overlap, or both have the media engines.
func conflict(i, at mig.Instance) bool { return !mig.Layout{}.With(i).Fits(at) }
