package partition

import (
	"errors"

	"github.com/gshare-dev/gshare/vgpu/mig"
	"github.com/gshare-dev/gshare/vgpu/mig/geometry"
)

// Errors that callers test for.
var (
	ErrInsufficientResources = errors.New("insufficient free resources for the MIG instance") // NVML: INSUFFICIENT_RESOURCES
	ErrInUse                 = errors.New("MIG instance is in use")                           // NVML: IN_USE
	ErrNotFound              = errors.New("MIG instance not found")                           // NVML: NOT_FOUND
	ErrNoGPU                 = errors.New("GPU not found by the driver")                      // it was replaced
	ErrNoMIG                 = errors.New("GPU is not in MIG mode")
	ErrJournal               = errors.New("MIG journal is invalid") // which instances gshare created is unknown
)

// Instance is a GPU instance (the MIG term for a partition with its own SMs and memory) as the device reports it.
type Instance struct {
	mig.Instance
	UUID             string // of the compute instance that has all of it; empty if there is none
	ComputeInstances int    // number of compute instances
	Busy             bool   // processes run on it
}

// Device creates and destroys the MIG instances of one GPU. Calls may block for as long as the driver does. Instances and the steps passed
// to Apply point to the same profiles. Implementations need not be safe for concurrent use.
type Device interface {
	// Instances returns the GPU instances that exist. With an error the list may be incomplete.
	Instances() ([]Instance, error)
	// Apply executes a step on the instance at the step's placement. A compute instance gets all of its GPU instance. The error is
	// ErrInsufficientResources, ErrInUse or ErrNotFound if the device reports that. After any error the step may have been executed.
	Apply(geometry.Step) error
}
