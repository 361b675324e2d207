// Package gpu finds the GPUs of a machine: behind one interface those that are simulated, and in package nvml the real
// ones.
package gpu

import (
	"errors"
	"fmt"
	"slices"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// ErrNone says that the machine has no GPU that could be shared.
var ErrNone = errors.New("no GPU")

// Device is one physical GPU.
type Device struct {
	UUID   string
	Minor  int    // of its device node, which need not be its index
	Index  int    // its number in the driver's order, as nvidia-smi shows it
	Model  string // as pods name it: A100
	SMs    int
	Memory share.Bytes // that programs may use

	Fault     string     // why it cannot be used now; empty where it can
	Instances []Instance // in MIG mode; without it none
	MIG       bool       // in MIG mode: its instances are used, never the whole
	Unread    string     // why it may have more instances than are listed, where those can be used; empty where it has no more
}

// Instance is one MIG instance of a device.
type Instance struct {
	UUID    string
	Profile string // such as 1g.10gb
	SMs     int
	Memory  share.Bytes
	Fault   string // why it cannot be used, where the device can

	GPU, Compute int   // the driver's numbers of its GPU instance and its compute instance
	Room         uint8 // a place for an instance that is made on demand: the memory slices that it takes
}

// Usable leaves only the devices that can be used now, as a whole or by their instances.
func Usable(devices []Device) []Device {
	return slices.DeleteFunc(slices.Clone(devices), func(d Device) bool { return d.Fault != "" })
}

// Process has a context on a device, of its own or through MPS.
type Process struct {
	PID   int    // as the agent sees it
	Slice string // UUID of the device, in MIG mode of the instance
}

// Source tells what the devices of a machine are, and who uses them. Calls may hang as long as a driver does.
type Source interface {
	// Devices lists the devices in the driver's order. The error is ErrNone where there are none.
	Devices() ([]Device, error)
	// Processes lists the processes, each once on each slice. With an error the list is what could be read.
	Processes() ([]Process, error)
}

// Validate refuses a device that could not be shared.
func (d Device) Validate() error {
	switch {
	case d.UUID == "" || len(d.UUID) > 47:
		return fmt.Errorf("a UUID of %d bytes", len(d.UUID))
	case !share.ValidModel(d.Model):
		return fmt.Errorf("device %s: %.64q is no model", d.UUID, d.Model)
	case d.SMs < 1:
		return fmt.Errorf("device %s: %d SMs", d.UUID, d.SMs)
	case d.Memory < share.MiB || d.Memory > share.MaxMemory:
		return fmt.Errorf("device %s: %d bytes of memory", d.UUID, d.Memory)
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

// Validate refuses an instance that could not be shared.
func (i Instance) Validate() error {
	switch {
	case i.UUID == "" || len(i.UUID) > 47:
		return fmt.Errorf("instance: a UUID of %d bytes", len(i.UUID))
	case !share.ValidProfile(i.Profile):
		return fmt.Errorf("instance %s: %.64q is no MIG profile", i.UUID, i.Profile)
	case i.SMs < 1 || i.Memory < share.MiB || i.Memory > share.MaxMemory:
		return fmt.Errorf("instance %s: %d SMs, %d bytes of memory", i.UUID, i.SMs, i.Memory)
	}
	return nil
}
