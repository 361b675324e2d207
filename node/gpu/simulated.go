package gpu

import (
	"fmt"
	"os"

	"github.com/gshare-dev/gshare/vgpu/api/strictyaml"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// Simulated is a Source of the devices and processes that a YAML file describes. The file is read on each call, so that devices can fail and
// recover, and processes start and end, while an agent runs:
//
//	devices:
//	- {uuid: GPU-0, model: A100, sms: 108, memoryMiB: 81920, numa: 0, nvlink: 1}
//	- {uuid: GPU-1, model: A100, sms: 108, memoryMiB: 81920, fault: "Xid 79"}
//	- {uuid: GPU-2, model: A100, sms: 108, memoryMiB: 81920, mig: [{uuid: MIG-0, profile: 1g.10gb, sms: 14, memoryMiB: 9728}]}
//	- {uuid: GPU-3, model: A100, sms: 108, memoryMiB: 81920, mig: []} # in MIG mode, such as for instances on demand
//	- {uuid: GPU-4, model: H200, sms: 132, memoryMiB: 143771, driverVersion: 580.65.06, computeCapability: "9.0"}
//	processes:
//	- {pid: 4711, slice: GPU-0, memoryMiB: 512}
//	- {pid: 4712, slice: GPU-0, graphics: true}
type Simulated struct{ File string }

type deviceFile struct {
	Devices []struct {
		simulatedSlice `json:",inline"`
		Model          string            `json:"model"`
		MIG            *[]simulatedSlice `json:"mig"`

		DriverVersion     string `json:"driverVersion"`
		ComputeCapability string `json:"computeCapability"`
		NUMA              *int   `json:"numa"`
		NVLink            int    `json:"nvlink"`
	} `json:"devices"`
	Processes []struct {
		PID       int    `json:"pid"`
		Slice     string `json:"slice"`
		MemoryMiB int64  `json:"memoryMiB"`
		Graphics  bool   `json:"graphics"`
	} `json:"processes"`
}

// simulatedSlice is the entry of a GPU or MIG instance in the file of simulated devices.
type simulatedSlice struct {
	UUID      string `json:"uuid"`
	Profile   string `json:"profile"`
	SMs       int    `json:"sms"`
	MemoryMiB int64  `json:"memoryMiB"`
	Fault     string `json:"fault"`
}

// memory returns the memory in bytes. If that would overflow, it returns an amount that Validate rejects.
func (p simulatedSlice) memory() share.Bytes {
	return share.Bytes(min(p.MemoryMiB, int64(share.MaxMemory/share.MiB)+1)) * share.MiB
}

// Devices returns the devices in the file.
func (s Simulated) Devices() ([]Device, error) {
	devices, _, err := s.read()
	return devices, err
}

// Processes returns the processes in the file.
func (s Simulated) Processes() ([]Process, error) {
	_, processes, err := s.read()
	return processes, err
}

func (s Simulated) read() ([]Device, []Process, error) {
	text, err := os.ReadFile(s.File)
	if err != nil {
		return nil, nil, fmt.Errorf("read simulated devices: %w", err)
	}
	devices, processes, err := parse(text)
	if err != nil {
		return nil, nil, fmt.Errorf("parse simulated devices %s: %w", s.File, err)
	}
	return devices, processes, nil
}

func parse(text []byte) (devices []Device, processes []Process, err error) {
	var file deviceFile
	if err := strictyaml.Unmarshal(text, &file); err != nil {
		return nil, nil, err
	}
	if devices, err = file.devices(); err != nil {
		return nil, nil, err
	}
	for _, p := range file.Processes {
		if p.PID < 1 || p.Slice == "" {
			return nil, nil, fmt.Errorf("process %d on %q: PID or UUID of the slice is missing", p.PID, p.Slice)
		}
		if p.MemoryMiB < 0 || p.MemoryMiB > int64(share.MaxMemory/share.MiB) {
			return nil, nil, fmt.Errorf("process %d on %s: %d MiB of memory", p.PID, p.Slice, p.MemoryMiB)
		}
		processes = append(processes, Process{PID: p.PID, Slice: p.Slice, Memory: share.Bytes(p.MemoryMiB) * share.MiB, Graphics: p.Graphics})
	}
	return devices, processes, nil
}

func (file *deviceFile) devices() (devices []Device, err error) {
	known := map[string]bool{}
	for n, d := range file.Devices {
		if d.Profile != "" {
			return nil, fmt.Errorf("device %s: only instances, in the list mig, have a profile", d.UUID)
		}
		device := Device{UUID: d.UUID, Index: n, Model: d.Model, SMs: d.SMs, Memory: d.memory(), Fault: d.Fault, MIG: d.MIG != nil, NUMA: d.NUMA, NVLink: d.NVLink}
		device.Properties = Properties{DriverVersion: d.DriverVersion, ComputeCapability: d.ComputeCapability}
		if device.MIG {
			for _, i := range *d.MIG {
				device.Instances = append(device.Instances, Instance{UUID: i.UUID, Profile: i.Profile, SMs: i.SMs, Memory: i.memory(), Fault: i.Fault})
			}
		}
		if err := device.Validate(); err != nil {
			return nil, err
		}
		for _, uuid := range uuids(device) {
			if known[uuid] {
				return nil, fmt.Errorf("UUID %s is listed twice", uuid)
			}
			known[uuid] = true
		}
		devices = append(devices, device)
	}
	if len(devices) == 0 {
		return nil, ErrNoGPU
	}
	return devices, nil
}

func uuids(d Device) []string {
	all := []string{d.UUID}
	for _, i := range d.Instances {
		all = append(all, i.UUID)
	}
	return all
}
