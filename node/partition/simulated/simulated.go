// Package simulated creates and removes the MIG instances of simulated GPUs, so that MIG on demand can be tried on machines without such
// GPUs. Instances are kept in a file: they outlive the agent, and end with the boot.
package simulated

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/gshare-dev/gshare/node/gpu"
	"github.com/gshare-dev/gshare/node/partition"
	"github.com/gshare-dev/gshare/vgpu/api/atomicfile"
	"github.com/gshare-dev/gshare/vgpu/mig"
	"github.com/gshare-dev/gshare/vgpu/mig/geometry"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// Source adds the MIG instances that were created to simulated devices in MIG mode, which are those with a list mig, even an empty one. It
// is safe for concurrent use.
type Source struct {
	gpu.Source
	Dir  string // for the files with the instances
	Boot string // partition.BootID

	mu sync.Mutex // guards the files
}

// Open returns the manager of a GPU's instances, and the model with its placements. The error is partition.ErrNoGPU if there is no such GPU,
// or partition.ErrNoMIG if it is not in MIG mode.
func (s *Source) Open(c partition.Config) (*partition.Manager, *mig.Model, error) {
	devices, err := s.Source.Devices()
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", partition.ErrNoGPU, err)
	}
	i := slices.IndexFunc(devices, func(d gpu.Device) bool { return d.UUID == c.UUID })
	switch {
	case i < 0:
		return nil, nil, fmt.Errorf("kubernetes.onDemand: %w: %.64q", partition.ErrNoGPU, c.UUID)
	case !devices[i].MIG:
		return nil, nil, fmt.Errorf("kubernetes.onDemand: %w: simulated device %s has no list mig", partition.ErrNoMIG, c.UUID)
	}
	model, err := modelOf(devices[i])
	if err != nil {
		return nil, nil, err
	}
	c.Device = &device{s, c.UUID, model}
	manager, err := partition.Open(c)
	return manager, model, err
}

// modelOf returns the model with a device's name and memory: A100-80GB for an A100 with 81920 MiB.
func modelOf(d gpu.Device) (*mig.Model, error) {
	return mig.ModelNamed(fmt.Sprintf("%s-%dGB", d.Model, (d.Memory/share.MiB+1023)/1024))
}

// Devices returns the devices with the instances that were created.
func (s *Source) Devices() ([]gpu.Device, error) {
	devices, err := s.Source.Devices()
	if err != nil {
		return nil, err
	}
	for n := range devices {
		d := &devices[n]
		model, unknown := modelOf(*d)
		if !d.MIG || unknown != nil {
			continue
		}
		made, err := (&device{s, d.UUID, model}).Instances()
		if err != nil {
			return nil, err
		}
		for _, i := range made {
			if i.UUID != "" {
				memory := d.Memory * share.Bytes(i.Profile.Memory) / share.Bytes(model.Memory)
				d.Instances = append(d.Instances, gpu.Instance{UUID: i.UUID, Profile: i.Profile.Name, SMs: i.Profile.SMs, Memory: memory, GPU: i.Start})
			}
		}
	}
	return devices, nil
}

// device is a simulated GPU whose instances are in a file. It implements partition.Device. No process is ever found on its instances.
type device struct {
	*Source
	uuid  string
	model *mig.Model
}

// state is the content of the file of a GPU.
type state struct {
	Boot      string  `json:"boot"`
	Instances []entry `json:"instances"`
}

// entry is a GPU instance in a file.
type entry struct {
	Profile string `json:"profile"`
	Start   int    `json:"start"`
	Compute bool   `json:"compute"` // it has its compute instance
}

func (d *device) file() string { return filepath.Join(d.Dir, "simulated-mig-"+d.uuid+".json") }

// load returns the instances. The caller holds the lock.
func (d *device) load() (now state, err error) {
	text, err := os.ReadFile(d.file())
	if err == nil {
		err = json.Unmarshal(text, &now)
	}
	if errors.Is(err, fs.ErrNotExist) || err == nil && now.Boot != d.Boot {
		return state{Boot: d.Boot}, nil
	}
	return now, err
}

// Instances implements partition.Device.
func (d *device) Instances() (found []partition.Instance, _ error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now, err := d.load()
	if err != nil {
		return nil, err
	}
	for _, e := range now.Instances {
		p, ok := d.model.Profile(e.Profile)
		if !ok {
			return nil, fmt.Errorf("%s: %.64q is not a profile of %s", d.file(), e.Profile, d.model.Name)
		}
		i := partition.Instance{Instance: mig.Instance{Profile: p, Start: e.Start}}
		if e.Compute {
			i.UUID, i.ComputeInstances = d.instanceUUID(e), 1
		}
		found = append(found, i)
	}
	return found, nil
}

func (d *device) instanceUUID(e entry) string {
	return fmt.Sprintf("MIG-%s-%s-%d", strings.TrimPrefix(d.uuid, "GPU-"), e.Profile, e.Start)
}

// Apply implements partition.Device.
func (d *device) Apply(s geometry.Step) error {
	found, err := d.Instances()
	if err != nil {
		return err
	}
	var layout mig.Layout
	for _, i := range found {
		layout = layout.With(i.Instance)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	now, err := d.load()
	if err != nil {
		return err
	}
	n := slices.IndexFunc(now.Instances, func(e entry) bool { return e.Profile == s.Profile.Name && e.Start == s.Start })
	switch {
	case s.Action == geometry.CreateGPU && !layout.Fits(s.Instance):
		return partition.ErrInsufficientResources
	case s.Action == geometry.CreateGPU:
		now.Instances = append(now.Instances, entry{Profile: s.Profile.Name, Start: s.Start})
	case n < 0:
		return partition.ErrNotFound
	case s.Action == geometry.CreateCompute:
		now.Instances[n].Compute = true
	case s.Action == geometry.DestroyCompute:
		now.Instances[n].Compute = false
	case now.Instances[n].Compute:
		return partition.ErrInUse
	default:
		now.Instances = slices.Delete(now.Instances, n, n+1)
	}
	text, err := json.Marshal(now)
	if err != nil {
		return err
	}
	return atomicfile.WriteFile(d.file(), text, 0o600)
}
