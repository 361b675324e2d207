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

// askLimit is the timeout of a request to the API server, and askPause the time between two of them.
const (
	askLimit = 5 * time.Second
	askPause = time.Second
)

// waitForServer blocks until the API server answers ask, or ctx ends. Meanwhile it answers the livenessProbe on the health address, unless that
// is 0. If the process ended because the API server is away, or were killed by its livenessProbe, the kubelet would restart it after pauses of
// up to five minutes, and so up to five minutes after the API server is back.
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

// withoutRefusal returns nil for an error with which the API server refuses a request: then it is there. A cluster may permit nobody to read its
// version, and waiting for that would never end.
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

// alive answers the livenessProbe with success and the readinessProbe with failure, because this process does not watch anything yet.
func alive(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/healthz" {
		http.Error(w, "waiting for the API server", http.StatusServiceUnavailable)
	}
}
