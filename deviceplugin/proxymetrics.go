package deviceplugin

import (
	"errors"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gshare-dev/gshare/deviceplugin/healthz"
)

// proxyMetrics holds the Prometheus metrics of a proxy.
type proxyMetrics struct {
	registered prometheus.Gauge
	connected  prometheus.Gauge
	waiting    prometheus.Gauge
	waits      prometheus.Histogram
}

func newProxyMetrics() *proxyMetrics {
	return &proxyMetrics{
		registered: prometheus.NewGauge(prometheus.GaugeOpts{Name: "gshare_proxy_registered", Help: "1 while the kubelet watches the proxy."}),
		connected:  prometheus.NewGauge(prometheus.GaugeOpts{Name: "gshare_proxy_agent_connected", Help: "1 while the proxy is connected to the agent."}),
		waiting:    prometheus.NewGauge(prometheus.GaugeOpts{Name: "gshare_proxy_waiting", Help: "Containers that wait for the agent now."}),
		waits: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "gshare_proxy_wait_seconds", Help: "How long containers waited for an agent that was away; those that did not wait are not counted.",
			Buckets: []float64{.1, .2, .5, 1, 2, 5, 10, 28},
		}),
	}
}

func (m *proxyMetrics) setRegistered(yes bool) {
	m.registered.Set(0)
	if yes {
		m.registered.Set(1)
	}
}

// Handler returns the HTTP handler of /metrics, /healthz and /readyz. A proxy is ready while the kubelet watches it, or while an agent with
// another protocol version is registered in its place.
func (f *Proxy) Handler() http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(f.metrics.registered, f.metrics.connected, f.metrics.waiting, f.metrics.waits)
	return healthz.Handler(registry, f.healthy, f.ready)
}

// stuckAfter is how long the proxy's lock may be held before /healthz fails.
const stuckAfter = 10 * time.Second

func (f *Proxy) healthy() error {
	free := make(chan struct{})
	go func() {
		f.DeviceIDs() // blocks while the lock is held
		close(free)
	}()
	select {
	case <-free:
		return nil
	case <-time.After(stuckAfter):
		return errors.New("the proxy is stuck")
	}
}

func (f *Proxy) ready() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.watched && !f.refused {
		return errors.New("not registered with the kubelet: the agent must have been there once")
	}
	return nil
}
