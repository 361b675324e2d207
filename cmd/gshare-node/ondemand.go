package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	library "github.com/NVIDIA/go-nvml/pkg/nvml"

	config "github.com/gshare-dev/gshare/vgpu/api/config/node"
	"github.com/gshare-dev/gshare/vgpu/node/gpu"
	"github.com/gshare-dev/gshare/vgpu/node/partition"
	"github.com/gshare-dev/gshare/vgpu/node/partition/nvml"
	"github.com/gshare-dev/gshare/vgpu/node/partition/ondemand"
)

// onDemandOf is the source with places on the GPUs that the configuration names; nil where it names none. The library stays
// initialised as long as the agent lives: a new session takes seconds to find the handles again.
func onDemandOf(c config.Configuration, source gpu.Source) (*ondemand.Source, error) {
	if len(c.Kubernetes.OnDemand) == 0 {
		return nil, nil
	}
	if c.SimulatedDevices != "" {
		return nil, usageError{errors.New("kubernetes.onDemand: simulated devices have no instances that could be made")}
	}
	driver := library.New()
	if r := driver.Init(); r != library.SUCCESS {
		return nil, fmt.Errorf("%w: NVML says %s", gpu.ErrNone, library.ErrorString(r))
	}
	boot, err := partition.Boot()
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(c.Directory, 0o755); err != nil {
		return nil, err
	}
	var gpus []ondemand.GPU
	for _, uuid := range c.Kubernetes.OnDemand {
		device, err := nvml.Find(driver, uuid)
		if err != nil {
			return nil, fmt.Errorf("kubernetes.onDemand: %w", err)
		}
		manager := partition.Config{
			Device: device, UUID: uuid, Boot: boot,
			Store: partition.File(filepath.Join(c.Directory, "mig-"+filepath.Base(uuid)+".json")),
		}
		gpus = append(gpus, ondemand.GPU{
			UUID: uuid, Model: device.Model(), Profiles: c.Kubernetes.OnDemandProfiles,
			Open: func() (*partition.Manager, error) { return partition.Open(manager) },
		})
	}
	return ondemand.New(source, gpus), nil
}
