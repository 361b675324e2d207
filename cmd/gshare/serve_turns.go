//go:build linux

package main

import (
	"context"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gshare-dev/gshare/cmd/gshare/internal/agent"
	"github.com/gshare-dev/gshare/cmd/internal/cli"
	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
	"github.com/gshare-dev/gshare/serving/fleet"
	processes "github.com/gshare-dev/gshare/serving/fleet/machine"
	"github.com/gshare-dev/gshare/serving/fleet/turns"
	"github.com/gshare-dev/gshare/serving/gateway"
)

// servers runs the functions' servers: either replicas that scale with the load, or one server for each function, which take turns on the GPUs.
type servers interface {
	Run(context.Context)
	Status() []fleet.Status
}

// servers returns the servers of the functions, in the way that --in-turn selects.
func (s *serveRun) servers(
	ctx context.Context, g *gateway.Gateway, m *processes.Machine, log *slog.Logger, metrics prometheus.Registerer, functions []*api.GPUFunction,
) (servers, error) {
	if !s.inTurn {
		f, err := fleet.New(fleet.Config{Gateways: g, Platform: m, Log: log}, functions)
		if err == nil {
			metrics.MustRegister(f)
		}
		return f, err
	}
	state, err := agent.New(s.socket).Status(ctx)
	if err != nil {
		return nil, err
	}
	c := turns.Config{Gateway: g, Platform: m, Log: log, GPUs: len(state.Devices)}
	for _, d := range state.Devices {
		if c.Memory == 0 {
			c.Memory = d.Memory
		}
		if d.Profile != "" || d.Memory != c.Memory {
			return nil, cli.Usagef("--in-turn: %s is a MIG instance or has another memory than the other GPUs, and a server could not say on which it runs", d.UUID)
		}
	}
	if c.GPUs == 0 {
		return nil, cli.Usagef("--in-turn: the agent has no GPUs")
	}
	return turns.New(c, functions)
}
