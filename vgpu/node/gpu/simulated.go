package gpu

import (
	"fmt"
	"os"

	"sigs.k8s.io/yaml"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// Simulated lists the devices that a file describes, as YAML:
//
//	devices:
//	- {uuid: GPU-0, model: A100, sms: 108, memoryMiB: 81920}
type Simulated struct{ File string }

type deviceFile struct {
	Devices []struct {
		UUID      string `json:"uuid"`
		Model     string `json:"model"`
		SMs       int    `json:"sms"`
		MemoryMiB int64  `json:"memoryMiB"`
	} `json:"devices"`
}

// Devices implements Source.
func (s Simulated) Devices() ([]Device, error) {
	text, err := os.ReadFile(s.File)
	if err != nil {
		return nil, fmt.Errorf("simulated devices: %w", err)
	}
	devices, err := parseDevices(text)
	if err != nil {
		return nil, fmt.Errorf("simulated devices %s: %w", s.File, err)
	}
	return devices, nil
}

func parseDevices(text []byte) (devices []Device, err error) {
	var file deviceFile
	if err := yaml.UnmarshalStrict(text, &file); err != nil {
		return nil, err
	}
	known := map[string]bool{}
	for _, d := range file.Devices {
		if d.MemoryMiB > int64(share.MaxMemory/share.MiB) {
			return nil, fmt.Errorf("device %s: %d MiB of memory", d.UUID, d.MemoryMiB)
		}
		device := Device{d.UUID, d.Model, d.SMs, share.Bytes(d.MemoryMiB) * share.MiB}
		if err := device.Validate(); err != nil {
			return nil, err
		}
		if known[d.UUID] {
			return nil, fmt.Errorf("device %s is there twice", d.UUID)
		}
		known[d.UUID] = true
		devices = append(devices, device)
	}
	if len(devices) == 0 {
		return nil, ErrNone
	}
	return devices, nil
}
