package main

import (
	"errors"
	"testing"
	"time"

	config "github.com/gshare-dev/gshare/vgpu/api/config/node"
	"github.com/gshare-dev/gshare/vgpu/node/gpu"
	"github.com/gshare-dev/gshare/vgpu/node/partition/ondemand"
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
	if err := s.Make("none.c1m1.0"); !errors.Is(err, ondemand.ErrClosed) {
		t.Error(err)
	}
}

// TestClearWithoutGPU: where the driver does not answer for a GPU, its instances are not said to be gone.
func TestClearWithoutGPU(t *testing.T) {
	if err := clearGPU(t.TempDir(), "GPU-none"); err == nil {
		t.Error("they are gone")
	}
}
