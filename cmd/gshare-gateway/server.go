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

// maxAccepting is the time for which requests are accepted after SIGTERM: clients, proxies and DNS learn meanwhile that the pod ends.
const maxAccepting = 5 * time.Second

// server accepts requests, and ends without losing one.
type server struct {
	http   *http.Server
	grace  time.Duration // until requests are broken off
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

// lastAnswer ends its connection: an answer of HTTP/1.1 says so, on one of HTTP/2 the client is told to open another one for further requests. So
// few connections are left that a request comes on at the moment at which they are closed.
type lastAnswer struct{ http.ResponseWriter }

func (w lastAnswer) WriteHeader(code int) {
	w.Header().Set("Connection", "close")
	w.ResponseWriter.WriteHeader(code)
}

// Unwrap is for http.ResponseController.
func (w lastAnswer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// serve accepts requests until ctx ends and some seconds longer, and returns when all are answered, or broken off after the grace.
func (s *server) serve(ctx context.Context, l net.Listener) error {
	return s.until(ctx, func() error { return s.http.Serve(l) })
}

// serveTLS is serve over TLS, as the server is configured for it.
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

// lastReports is the time in which controllers get the last reports.
const lastReports = 2 * time.Second

// serveReports reports the load until stop is called, which sends the last reports.
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
