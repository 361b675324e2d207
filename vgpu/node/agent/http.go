package agent

import (
	"errors"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	tokenmetrics "github.com/gshare-dev/gshare/vgpu/node/tokenserver/metrics"
)

// Handler serves /metrics, /healthz and /readyz.
func (a *Agent) Handler() http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(a.metrics, tokenmetrics.New(a.server))
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

// healthy says that nothing holds the agent up for long.
func (a *Agent) healthy() error {
	free := make(chan struct{})
	go func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		close(free)
	}()
	select {
	case <-free:
		return nil
	case <-time.After(10 * time.Second):
		return errors.New("the agent is stuck")
	}
}

// ready says that pods can be placed here and started.
func (a *Agent) ready() error {
	switch {
	case !a.metrics.registered.Load():
		return errors.New("not registered with the kubelet")
	case !a.metrics.open.Load():
		return errors.New("the API server has not been told that the node takes pods")
	}
	return nil
}
