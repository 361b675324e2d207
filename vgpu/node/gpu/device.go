// Package gpu finds the GPUs of a machine: behind one interface those that are simulated, and in package nvml the real
// ones.
package gpu

import (
	"errors"
	"fmt"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// ErrNone says that the machine has no GPU that could be shared.
var ErrNone = errors.New("no GPU")

// Device is one physical GPU.
type Device struct {
	UUID   string
	Model  string // as pods name it: A100
	SMs    int
	Memory share.Bytes // that programs may use
}

// Source lists the devices of a machine. The order is the driver's. The error is ErrNone where there are none.
type Source interface {
	Devices() ([]Device, error)
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
	}
	return nil
}
