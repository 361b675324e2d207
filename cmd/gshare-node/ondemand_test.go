package main

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	library "github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"

	"github.com/gshare-dev/gshare/node/gpu"
	"github.com/gshare-dev/gshare/node/partition"
	"github.com/gshare-dev/gshare/node/partition/ondemand"
	config "github.com/gshare-dev/gshare/vgpu/api/config/node"
)

// TestOnDemandWithoutGPU: a GPU that is not there, or no driver at all, closes its places, and not the agent.
func TestOnDemandWithoutGPU(t *testing.T) {
	c := config.Configuration{Directory: t.TempDir(), Kubernetes: config.Kubernetes{OnDemand: []string{"GPU-none"}}}.WithDefaults()
	s, err := onDemandOf(c, gpu.Simulated{})
	if err != nil {
		t.Fatal(err)
	}
	met := make(chan error, 1)
	s.Open(t.Context(), time.Hour, func(_ string, err error) { met <- err })
	if err := <-met; err == nil {
		t.Error("it is open")
	}
	if err := s.Ensure("none.c1m1.0"); !errors.Is(err, ondemand.ErrClosed) {
		t.Error(err)
	}
}

// TestOnDemandSimulated: instances are made on a simulated GPU.
func TestOnDemandSimulated(t *testing.T) {
	dir := t.TempDir()
	c := config.Configuration{
		Directory: dir, SimulatedDevices: filepath.Join(dir, "devices.yaml"), Kubernetes: config.Kubernetes{OnDemand: []string{"GPU-a"}},
	}.WithDefaults()
	if err := os.WriteFile(c.SimulatedDevices, []byte("devices: [{uuid: GPU-a, model: A100, sms: 108, memoryMiB: 81920, mig: []}]"), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := onDemandOf(c, gpu.Simulated{File: c.SimulatedDevices})
	if err != nil {
		t.Fatal(err)
	}
	<-s.Open(t.Context(), time.Hour, func(_ string, err error) {
		if err != nil {
			t.Error(err)
		}
	})
	if devices, err := s.Devices(); err != nil || len(devices[0].Instances) != 18 {
		t.Errorf("%+v, %v", devices, err)
	}
	if err := s.Ensure("a.c1m1.6"); !errors.Is(err, ondemand.ErrCreating) {
		t.Error(err)
	}
	for deadline := time.Now().Add(time.Minute); s.UUID("a.c1m1.6") != "MIG-a-1g.10gb-6"; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the instance is not made")
		}
	}
}

// journal writes that of a GPU, with one instance.
func journal(t *testing.T, boot string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	text := `{"version": 1, "boot": "` + boot + `", "device": "GPU-a", "made": [{"profile": "1g.10gb", "start": 0}], "intent": null}`
	if err := os.WriteFile(string(partition.JournalFile(dir, "GPU-a")), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// answering is a driver that answers so when it is asked for the GPU, and for its mode: it is not in MIG mode.
func answering(find, mode library.Return) library.Interface {
	device := &mock.Device{GetMigModeFunc: func() (int, int, library.Return) { return library.DEVICE_MIG_DISABLE, 0, mode }}
	return &mock.Interface{
		InitFunc:                  func() library.Return { return library.SUCCESS },
		ShutdownFunc:              func() library.Return { return library.SUCCESS },
		DeviceGetHandleByUUIDFunc: func(string) (library.Device, library.Return) { return device, find },
	}
}

// TestClearWithoutGPU: instances are gone with the boot, with MIG mode, and with the GPU, but not where the driver does not answer for it.
func TestClearWithoutGPU(t *testing.T) {
	boot, err := partition.BootID()
	if err != nil {
		t.Fatal(err)
	}
	none := &mock.Interface{InitFunc: func() library.Return { return library.ERROR_DRIVER_NOT_LOADED }}
	for name, test := range map[string]struct {
		driver    library.Interface
		directory string
		gone      bool
	}{
		"no driver":        {none, journal(t, boot), false},
		"the GPU is lost":  {answering(library.ERROR_GPU_IS_LOST, 0), journal(t, boot), false},
		"the mode is not":  {answering(library.SUCCESS, library.ERROR_UNKNOWN), journal(t, boot), false},
		"another GPU":      {answering(library.ERROR_NOT_FOUND, 0), journal(t, boot), true},
		"not in MIG mode":  {answering(library.SUCCESS, library.SUCCESS), journal(t, boot), true},
		"another boot":     {none, journal(t, "earlier"), true},
		"nothing was made": {none, t.TempDir(), true},
	} {
		t.Run(name, func(t *testing.T) {
			if err := clearGPU(test.driver, test.directory, "GPU-a"); (err == nil) != test.gone {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
}
