package main

import (
	"net/http"
	"net/http/httputil"
	"net/url"
	"time"

	"github.com/kserve/kserve/pkg/batcher"
	"go.opentelemetry.io/otel/trace/noop"
	"go.uber.org/zap"
	"knative.dev/networking/pkg/http/header"
	"knative.dev/networking/pkg/http/proxy"
	pkgnet "knative.dev/pkg/network"
	pkghandler "knative.dev/pkg/network/handlers"
	"knative.dev/serving/pkg/queue"
	"knative.dev/serving/pkg/queue/health"
)

// Batches have as many instances as serving/gateway's in the comparison, and wait for others for the shortest time that the batcher allows.
const (
	batchSize      = 8
	batchLatencyMS = 1
)

// newBatcher returns the handler that buildServer of KServe's cmd/agent returns if only --enable-batcher is set.
func newBatcher(target string) http.Handler {
	logger := zap.NewNop().Sugar()
	p := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: target})
	p.Transport = pkgnet.NewAutoTransport(1000, 1000)
	p.ErrorHandler = pkghandler.Error(logger)
	p.BufferPool = proxy.NewBufferPool()
	p.FlushInterval = proxy.FlushInterval
	return &pkghandler.Drainer{
		QuietPeriod:           30 * time.Second,
		HealthCheckUAPrefixes: []string{header.ActivatorUserAgent},
		Inner:                 queue.ForwardedShimHandler(batcher.New(batchSize, batchLatencyMS, p, logger)),
		HealthCheck:           health.ProbeHandler(noop.NewTracerProvider().Tracer(""), func() bool { return true }),
	}
}
