package agent

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	tokenmetrics "github.com/gshare-dev/gshare/vgpu/node/tokenserver/metrics"
)

// Handler returns the HTTP handler of /metrics, /healthz and /readyz.
func (a *Agent) Handler() http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collector{a}, tokenmetrics.New(a.slices.server))
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { answer(w, a.healthy()) })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) { answer(w, a.ready()) })
	return mux
}

func answer(w http.ResponseWriter, err error) {
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	_, _ = w.Write([]byte("ok\n"))
}

// stuckAfter is how long an operation on one container may take before /healthz fails.
const stuckAfter = 10 * time.Second

// healthy returns an error if a lock or an operation on a container is held up for too long, for example by a disk that hangs.
func (a *Agent) healthy() error {
	free := make(chan struct{})
	go func() {
		a.devices.isBound() // takes the locks
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

// ready returns an error unless pods can be placed on the node and started.
func (a *Agent) ready() error {
	switch {
	case !a.metrics.isWatched():
		return errors.New("not registered with the kubelet")
	case !a.metrics.open.Load():
		return errors.New("the API server has not stored yet that the node takes pods")
	}
	return nil
}
