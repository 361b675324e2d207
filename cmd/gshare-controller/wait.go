package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// The limit of a question to the API server, and the time after which the next one follows.
const (
	askLimit = 5 * time.Second
	askPause = time.Second
)

// waitForServer blocks until the API server answers ask, or ctx ends. Meanwhile it says on the address of the health checks, 0 for none, that this process
// is alive: one that ends since the API server is away, or is ended by its livenessProbe, is started again after pauses of up to five minutes, and so as
// late when the API server is back.
func waitForServer(ctx context.Context, health string, ask func(context.Context) error, log *slog.Logger) error {
	bounded := func() error {
		ctx, cancel := context.WithTimeout(ctx, askLimit)
		defer cancel()
		return withoutRefusal(ask(ctx))
	}
	err := bounded()
	if err == nil {
		return nil
	}
	log.Warn("waiting for the API server", "error", err)
	if health != "0" {
		listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", health)
		if err != nil {
			return fmt.Errorf("--health: %w", err)
		}
		server := &http.Server{Handler: http.HandlerFunc(alive), ReadHeaderTimeout: askLimit}
		go func() { _ = server.Serve(listener) }() // ends with Close
		defer server.Close()
	}
	for {
		select {
		case <-time.After(askPause):
		case <-ctx.Done():
			return ctx.Err()
		}
		if bounded() == nil {
			log.Info("the API server answers")
			return nil
		}
	}
}

// withoutRefusal returns nil for an error by which the API server itself refuses a question: it is there. A cluster may let nobody ask for its version,
// and one that waited for that would wait for ever.
func withoutRefusal(err error) error {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		switch status.Status().Code {
		case http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound:
			return nil
		}
	}
	return err
}

// alive answers the livenessProbe. The readinessProbe fails: this process does not watch anything yet.
func alive(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/healthz" {
		http.Error(w, "waiting for the API server", http.StatusServiceUnavailable)
	}
}
