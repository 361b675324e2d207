package main

import (
	"errors"
	"fmt"

	library "github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gshare-dev/gshare/node/gpu"
	"github.com/gshare-dev/gshare/node/partition"
	"github.com/gshare-dev/gshare/node/partition/nvml"
	"github.com/gshare-dev/gshare/node/partition/ondemand"
	simulatedmig "github.com/gshare-dev/gshare/node/partition/simulated"
	config "github.com/gshare-dev/gshare/vgpu/api/config/node"
	"github.com/gshare-dev/gshare/vgpu/mig"
)

// onDemandOf returns a source of devices that also offers the MIG instances that can be created on the GPUs configured for that, or nil if no
// GPU is. It does not call the driver, which may hang.
func onDemandOf(c config.Configuration, source gpu.Source) (*ondemand.Source, error) {
	if len(c.Kubernetes.OnDemand) == 0 {
		return nil, nil
	}
	boot, err := partition.BootID()
	if err != nil {
		return nil, err
	}
	var open func(partition.Config) (*partition.Manager, *mig.Model, error)
	if c.SimulatedDevices != "" {
		s := &simulatedmig.Source{Source: source, Dir: c.Directory, Boot: boot}
		source, open = s, s.Open
	} else {
		driver := library.New()
		open = func(p partition.Config) (*partition.Manager, *mig.Model, error) { return openGPU(driver, p) }
	}
	var gpus []ondemand.GPU
	for _, uuid := range c.Kubernetes.OnDemand {
		manager := partition.Config{UUID: uuid, BootID: boot, Store: partition.JournalFile(c.Directory, uuid)}
		gpus = append(gpus, ondemand.GPU{
			UUID: uuid, Profiles: c.Kubernetes.OnDemandProfiles,
			Open: func() (*partition.Manager, *mig.Model, error) { return open(manager) },
		})
	}
	return ondemand.New(source, gpus), nil
}

// openGPU opens a GPU and adopts its existing MIG instances. NVML stays initialised while the agent runs, because in a new NVML session it takes
// seconds to find the handles.
func openGPU(driver library.Interface, c partition.Config) (*partition.Manager, *mig.Model, error) {
	if r := driver.Init(); r != library.SUCCESS {
		return nil, nil, fmt.Errorf("%w: initialize NVML: %s", gpu.ErrNoGPU, library.ErrorString(r))
	}
	device, err := nvml.Find(driver, c.UUID)
	if err != nil {
		driver.Shutdown()
		return nil, nil, fmt.Errorf("kubernetes.onDemand: %w", err)
	}
	c.Device = device
	manager, err := partition.Open(c)
	if err != nil {
		driver.Shutdown()
	}
	return manager, device.Model(), err
}

// clearGPU destroys the MIG instances that node agents created on a GPU, as part of uninstalling. It succeeds if there is none, for example
// after a reboot or because the GPU is no longer in MIG mode or in the machine.
func clearGPU(driver library.Interface, directory, uuid string) error {
	boot, err := partition.BootID()
	if err != nil {
		return err
	}
	c := partition.Config{UUID: uuid, BootID: boot, Store: partition.JournalFile(directory, uuid)}
	if made, err := c.HasInstances(); err != nil || !made {
		return err
	}
	manager, _, err := openGPU(driver, c)
	if errors.Is(err, partition.ErrNoMIG) || errors.Is(err, partition.ErrNoGPU) {
		return nil
	}
	if err != nil {
		return err
	}
	defer driver.Shutdown()
	return manager.Clear()
}
