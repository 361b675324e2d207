package agent

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gshare-dev/gshare/deviceplugin/healthz"
	tokenmetrics "github.com/gshare-dev/gshare/node/tokenserver/metrics"
)

// Handler returns the HTTP handler of /metrics, /healthz and /readyz.
func (a *Agent) Handler() http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collector{a}, tokenmetrics.New(a.slices.Tokens))
	return healthz.Handler(registry, a.healthy, a.ready)
}

// stuckAfter is how long an operation on one container may take before /healthz fails.
const stuckAfter = 10 * time.Second

// healthy returns an error if a lock, or an operation on a container, is held for too long, for example because a disk hangs.
func (a *Agent) healthy() error {
	free := make(chan struct{})
	go func() {
		a.devices.isBound() // blocks if a lock is held
		a.guard.findings()
		close(free)
	}()
	select {
	case <-free:
	case <-time.After(stuckAfter):
		return errors.New("the agent is stuck")
	}
	if id := a.granter.operations.overdue(stuckAfter); id != "" {
		return fmt.Errorf("the operation on container %s is stuck", id)
	}
	return nil
}

// ready returns an error unless pods can be placed on the node and started there.
func (a *Agent) ready() error {
	switch {
	case !a.metrics.isWatched():
		return errors.New("not registered with the kubelet")
	case !a.metrics.open.Load():
		return errors.New("the API server has not stored yet that the node takes pods")
	}
	return nil
}
