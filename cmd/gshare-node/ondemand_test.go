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
