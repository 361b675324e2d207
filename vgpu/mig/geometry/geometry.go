// Package geometry decides how the instances of a partitioned GPU (MIG) change when one is wished for in a place: an idle one
// that is there is given again, and others are removed only where their room is needed. What is in use stays.
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
	Ready bool // it has the compute instance that programs run on
	Used  bool // somebody has it or runs on it: it is neither given nor removed
	Fixed bool // it may be given, but not removed
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

// Actions lists them all.
var Actions = []Action{CreateGPU, CreateCompute, DestroyCompute, DestroyGPU}

// Step is one call of the driver. Where it lies names a GPU instance: no two that exist overlap.
type Step struct {
	Action
	mig.Instance
}

func (s Step) String() string { return fmt.Sprintf("%s %s at %d", s.Action, s.Profile.Name, s.Start) }

// Plan gives the steps to an instance in one place, which the scheduler has chosen: none where it is there already. It is false
// where instances that stay are in the way, or the instance there is used.
//
// Idle instances have no say, so that a GPU accepts what it would if they were removed at once.
func Plan(now []Instance, at mig.Instance) (steps []Step, ok bool) {
	for _, i := range now {
		there := i.Instance == at
		if there && (i.Used || i.Fixed && !i.Ready) || !there && (i.Used || i.Fixed) && inTheWay(i.Instance, at) {
			return nil, false
		}
	}
	return lead(now, at), true
}

// lead gives the steps to an instance at a place that those that stay leave free.
func lead(now []Instance, at mig.Instance) (steps []Step) {
	creations := []Step{{CreateGPU, at}, {CreateCompute, at}}
	for _, i := range now {
		switch {
		case i.Instance == at && i.Ready:
			return nil
		case i.Instance == at:
			creations = creations[1:]
		case inTheWay(i.Instance, at):
			steps = append(steps, Removal(i)...)
		}
	}
	return append(steps, creations...)
}

// Removal gives the steps that remove an idle instance.
func Removal(i Instance) []Step {
	if !i.Ready {
		return []Step{{DestroyGPU, i.Instance}}
	}
	return []Step{{DestroyCompute, i.Instance}, {DestroyGPU, i.Instance}}
}

// inTheWay says that two instances cannot exist together: they overlap, or both have the media engines.
func inTheWay(i, at mig.Instance) bool { return !mig.Layout{}.With(i).Fits(at) }
