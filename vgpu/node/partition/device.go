package partition

import (
	"errors"

	"github.com/gshare-dev/gshare/vgpu/mig"
	"github.com/gshare-dev/gshare/vgpu/mig/geometry"
)

// What callers test for.
var (
	ErrNoRoom   = errors.New("no room for the instance")        // NVML: INSUFFICIENT_RESOURCES
	ErrInUse    = errors.New("the instance is in use")          // NVML: IN_USE
	ErrNotFound = errors.New("no such instance")                // NVML: NOT_FOUND
	ErrNoGPU    = errors.New("the driver has no such GPU")      // it was replaced
	ErrNoMIG    = errors.New("no GPU in MIG mode")              // nothing can be partitioned
	ErrJournal  = errors.New("the journal cannot be relied on") // what is gshare's on the GPU is not known
)

// Instance is a GPU instance as the device reports it.
type Instance struct {
	mig.Instance
	UUID    string // of its compute instance; empty where none has all of it
	Compute int    // how many compute instances there are
	Busy    bool   // processes run on it
}

// Device is one GPU in MIG mode. Steps and instances share the profiles of its model, by pointer. Calls may hang as long as a
// driver does; it need not serve concurrent callers.
type Device interface {
	// Instances lists the GPU instances that exist. An error says that the list may lack some.
	Instances() ([]Instance, error)
	// Do takes a step, on the instance that lies there. A compute instance is given all of its GPU instance. The error is
	// ErrNoRoom, ErrInUse or ErrNotFound where the device says so; after any error the step may yet have been taken.
	Do(geometry.Step) error
}
