// Package gpu lists the GPUs of a machine and the processes on them. Its Source is implemented by a simulation, and by package nvml for
// real GPUs.
package gpu

import (
	"errors"
	"fmt"
	"slices"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// ErrNoGPU is returned if the machine has no usable GPU.
var ErrNoGPU = errors.New("no GPU")

// Device holds the properties and the present state of one physical GPU.
type Device struct {
	UUID   string
	Minor  int    // number of its device node, which may differ from its index
	Index  int    // its number in the driver's order, as nvidia-smi shows it
	Model  string // as pods name it: A100
	SMs    int
	Memory share.Bytes // that programs may use
	Properties

	NUMA   *int // node of the machine to which it is attached; nil: not known
	NVLink int  // number, from 1, of a set of GPUs of the machine of which every two are joined by NVLink; 0: none, or not known

	Fault      string     // why it cannot be used now; empty if it can
	Instances  []Instance // only in MIG mode
	MIG        bool       // the device is in MIG mode: its instances are used, never the whole device
	Incomplete string     // why some of its instances could not be listed; empty if all are
}

// Properties are what users may require of a GPU besides its model and size. Unknown properties are empty.
type Properties struct {
	DriverVersion     string // such as 580.65.06
	ComputeCapability string // of CUDA, such as 9.0
}

// Instance holds the properties and the present state of one MIG instance.
type Instance struct {
	UUID    string
	Profile string // such as 1g.10gb
	SMs     int
	Memory  share.Bytes
	Fault   string // why it cannot be used although the device can be

	GPU, Compute int   // the driver's IDs of its GPU instance and its compute instance
	MemorySlices uint8 // bit set of the memory slices that it occupies; 0 unless it is a placement for an instance created on demand
}

// Usable returns the devices without a fault.
func Usable(devices []Device) []Device {
	return slices.DeleteFunc(slices.Clone(devices), func(d Device) bool { return d.Fault != "" })
}

// Process is a process that uses a GPU or MIG instance: with a CUDA or OpenCL context of its own, through MPS, or for graphics.
type Process struct {
	PID      int         // as the agent's PID namespace has it
	Slice    string      // UUID of the device, or of the instance in MIG mode
	Memory   share.Bytes // that the driver counts for it there, including its contexts; 0 if the driver does not tell
	Graphics bool        // it uses OpenGL or Vulkan and has no CUDA context
}

// Source lists the GPUs of a machine and the processes that use them. Its calls block for as long as the driver does.
type Source interface {
	// Devices returns the devices in the driver's order. The error is ErrNoGPU if there are none.
	Devices() ([]Device, error)
	// Processes returns the processes, each once for each slice. With an error the list may be incomplete.
	Processes() ([]Process, error)
}

// maxLocality bounds the numbers of NUMA nodes, of which Linux has up to 1024, and of NVLink sets.
const maxLocality = 1023

// Validate returns an error if a property of the GPU or of one of its instances is missing or out of range.
func (d Device) Validate() error {
	switch {
	case d.UUID == "" || len(d.UUID) > 47:
		return fmt.Errorf("device: UUID of %d bytes", len(d.UUID))
	case !share.ValidModel(d.Model):
		return fmt.Errorf("device %s: %.64q is not a model name", d.UUID, d.Model)
	case d.SMs < 1:
		return fmt.Errorf("device %s: %d SMs", d.UUID, d.SMs)
	case d.Memory < share.MiB || d.Memory > share.MaxMemory:
		return fmt.Errorf("device %s: %d bytes of memory", d.UUID, d.Memory)
	case d.NUMA != nil && (*d.NUMA < 0 || *d.NUMA > maxLocality):
		return fmt.Errorf("device %s: NUMA node %d", d.UUID, *d.NUMA)
	case d.NVLink < 0 || d.NVLink > maxLocality:
		return fmt.Errorf("device %s: NVLink set %d", d.UUID, d.NVLink)
	case len(d.Instances) > 0 && !d.MIG:
		return fmt.Errorf("device %s: instances without MIG mode", d.UUID)
	}
	for _, i := range d.Instances {
		if err := i.Validate(); err != nil {
			return fmt.Errorf("device %s: %w", d.UUID, err)
		}
	}
	return nil
}

// Validate returns an error if a property of the MIG instance is missing or out of range.
func (i Instance) Validate() error {
	switch {
	case i.UUID == "" || len(i.UUID) > 47:
		return fmt.Errorf("instance: UUID of %d bytes", len(i.UUID))
	case !share.ValidProfile(i.Profile):
		return fmt.Errorf("instance %s: %.64q is not a MIG profile", i.UUID, i.Profile)
	case i.SMs < 1 || i.Memory < share.MiB || i.Memory > share.MaxMemory:
		return fmt.Errorf("instance %s: %d SMs, %d bytes of memory", i.UUID, i.SMs, i.Memory)
	}
	return nil
}
