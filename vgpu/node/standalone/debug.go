package standalone

import (
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/gshare-dev/gshare/vgpu/node/tokenserver/metrics"
)

// NewDebugServer returns a server of /metrics: those of the token server, of the Go runtime and of the process.
func (n *Node) NewDebugServer() *http.Server {
	registry := prometheus.NewRegistry()
	registry.MustRegister(metrics.New(n.server), collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	return &http.Server{Handler: mux, ReadHeaderTimeout: 2 * time.Second}
}
