package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gshare-dev/gshare/cmd/internal/cli"
	"github.com/gshare-dev/gshare/node/gpu"
	"github.com/gshare-dev/gshare/node/gpu/simulation"
	config "github.com/gshare-dev/gshare/vgpu/api/config/node"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// simulatedKernels is the running simulation of kernels on simulated devices. If kernels are not simulated, only stop is set.
type simulatedKernels struct {
	environment []string // tells a program's simulated driver where the simulation is
	metrics     []prometheus.Collector
	stop        func()
}

// simulateKernels simulates the kernels on the simulated devices, if the configuration asks for it, until stop is called.
func simulateKernels(c config.Configuration) (k simulatedKernels, err error) {
	if !c.SimulatedKernels {
		return simulatedKernels{stop: func() {}}, nil
	}
	devices, err := sourceOf(c).Devices()
	if err != nil {
		return k, cli.Usage(fmt.Errorf("simulatedDevices: %w", err))
	}
	memory, err := driverMemory(devices)
	if err != nil {
		return k, cli.Usage(fmt.Errorf("simulatedKernels: %w", err))
	}
	socket := filepath.Join(c.Directory, "simulation.sock")
	mode := os.FileMode(0o600)
	if os.Geteuid() == 0 {
		mode = 0o666 // like the control socket's: an agent that runs as root serves all users
	}
	s, err := simulation.New(simulation.Config{Socket: socket, Mode: mode, Devices: len(devices)})
	if err != nil {
		return k, err
	}
	return simulatedKernels{
		environment: []string{
			"FAKE_CUDA_SOCKET=" + socket, fmt.Sprintf("FAKE_CUDA_DEVICES=%d", len(devices)), fmt.Sprintf("FAKE_CUDA_MEMORY=%d", memory),
		},
		metrics: []prometheus.Collector{s}, stop: func() { _ = s.Close() },
	}, nil
}

// driverMemory returns the memory of each device, for the simulated driver. It returns an error if the devices differ from those that the driver
// simulates, which have fixed UUIDs and are whole GPUs of equal memory.
func driverMemory(devices []gpu.Device) (share.Bytes, error) {
	for i, d := range devices {
		want := fmt.Sprintf("GPU-00000000-0000-0000-0000-%012x", i)
		switch {
		case d.UUID != want:
			return 0, fmt.Errorf("device %d is %s, want %s, which the simulated driver has", i, d.UUID, want)
		case d.MIG:
			return 0, fmt.Errorf("device %s is in MIG mode, which the simulated driver does not have", d.UUID)
		case d.Memory != devices[0].Memory:
			return 0, fmt.Errorf("device %s has other memory than the first, which the simulated driver does not have", d.UUID)
		}
	}
	return devices[0].Memory, nil
}
