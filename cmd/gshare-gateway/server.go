package main

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"google.golang.org/grpc"

	"github.com/gshare-dev/gshare/serving/report"
)

// maxAccepting is how long, at most, requests are still accepted after SIGTERM. In that time clients, proxies and DNS learn that the pod is
// ending.
const maxAccepting = 5 * time.Second

// server serves HTTP, and shuts down without losing an accepted request.
type server struct {
	http   *http.Server
	grace  time.Duration // time after which the shutdown breaks off requests
	log    *slog.Logger
	ending atomic.Bool
}

func newServer(s *http.Server, grace time.Duration, log *slog.Logger) *server {
	created := &server{http: s, grace: grace, log: log}
	handler := s.Handler
	s.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if created.ending.Load() {
			w = lastAnswer{w}
		}
		handler.ServeHTTP(w, r)
	})
	return created
}

// lastAnswer is a ResponseWriter that makes its answer the last on the connection: with HTTP/1.1 the answer closes the connection; with HTTP/2
// the client is told to open another one for further requests. So when the server finally closes its connections, a request is unlikely to
// arrive on one of them at that moment.
type lastAnswer struct{ http.ResponseWriter }

func (w lastAnswer) WriteHeader(code int) {
	w.Header().Set("Connection", "close")
	w.ResponseWriter.WriteHeader(code)
}

// Unwrap lets http.ResponseController find the wrapped ResponseWriter.
func (w lastAnswer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// serve accepts requests until some seconds after ctx has ended. It returns when all are answered, or broken off after the grace.
func (s *server) serve(ctx context.Context, l net.Listener) error {
	return s.until(ctx, func() error { return s.http.Serve(l) })
}

// serveTLS does what serve does, over TLS as the http.Server is configured for it.
func (s *server) serveTLS(ctx context.Context, l net.Listener) error {
	return s.until(ctx, func() error { return s.http.ServeTLS(l, "", "") })
}

func (s *server) until(ctx context.Context, accept func() error) error {
	failed := make(chan error, 1)
	go func() { failed <- accept() }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	s.ending.Store(true)
	s.log.Info("stopping")
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.grace)
	defer cancel()
	select {
	case err := <-failed:
		return err
	case <-time.After(min(maxAccepting, s.grace/2)):
	}
	if err := s.http.Shutdown(limited); errors.Is(err, context.DeadlineExceeded) {
		s.log.Warn("broke off requests that took too long", "grace", s.grace)
		return s.http.Close()
	} else if err != nil {
		return err
	}
	s.log.Info("stopped, all requests are answered")
	return nil
}

// serveMetrics serves metrics and probes until stop is called.
func serveMetrics(l net.Listener, registry *prometheus.Registry, ready func() bool) (stop func()) {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok\n")) })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if !ready() {
			http.Error(w, "the functions are not known yet, or the gateway is stopping", http.StatusServiceUnavailable)
			return
		}
		_, _ = w.Write([]byte("ok\n"))
	})
	s := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	go s.Serve(l)
	return func() { _ = s.Close() }
}

// lastReports is how long controllers have to receive the last reports.
const lastReports = 2 * time.Second

// serveReports reports the load until stop is called. stop returns when the last reports are sent.
func serveReports(ctx context.Context, l net.Listener, reports *report.Server, options ...grpc.ServerOption) (stop func()) {
	running, end := context.WithCancel(ctx)
	go reports.Run(running)
	s := reports.GRPC(options...)
	go s.Serve(l)
	return func() {
		end()
		timer := time.AfterFunc(lastReports, s.Stop)
		defer timer.Stop()
		s.GracefulStop()
	}
}
