package main

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// TestWaitForServer: a controller that is started while the API server is away is alive and not ready, and goes on when it answers.
func TestWaitForServer(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.2:0") // no outgoing connection takes its port until it is used: those come from 127.0.0.1
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	listener.Close()
	asked, answers := make(chan struct{}), make(chan error)
	ask := func(context.Context) error { asked <- struct{}{}; return <-answers }
	ended := make(chan error, 1)
	go func() { ended <- waitForServer(t.Context(), address, ask, slog.New(slog.DiscardHandler)) }()
	<-asked
	answers <- errors.New("connection refused")
	<-asked // the second time: it listens
	for path, want := range map[string]int{"/healthz": http.StatusOK, "/readyz": http.StatusServiceUnavailable} {
		response, err := http.Get("http://" + address + path)
		if err != nil {
			t.Fatal(err)
		}
		if response.Body.Close(); response.StatusCode != want {
			t.Errorf("%s: %s, want %d", path, response.Status, want)
		}
	}
	answers <- nil
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if again, err := net.Listen("tcp", address); err != nil {
		t.Errorf("the address is not free for the manager: %v", err)
	} else {
		again.Close()
	}
}

// TestWaitEnds: SIGTERM ends one that waits, and one that need not wait does not listen.
func TestWaitEnds(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	away := func(context.Context) error { return errors.New("connection refused") }
	if err := waitForServer(ctx, "0", away, slog.New(slog.DiscardHandler)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v", err)
	}
	there := func(context.Context) error { return nil }
	if err := waitForServer(t.Context(), "no address", there, slog.New(slog.DiscardHandler)); err != nil {
		t.Error(err)
	}
}

// TestRefusalIsAnAnswer: an API server that does not tell its version is there, and one that cannot answer yet, or a proxy before it, is not.
func TestRefusalIsAnAnswer(t *testing.T) {
	for name, test := range map[string]struct {
		answer error
		waits  bool
	}{
		"forbidden":       {apierrors.NewForbidden(schema.GroupResource{}, "", errors.New("cannot get path /version")), false},
		"token refused":   {apierrors.NewUnauthorized("expired"), false},
		"not served":      {apierrors.NewNotFound(schema.GroupResource{}, ""), false},
		"starting":        {apierrors.NewServiceUnavailable("starting"), true},
		"overloaded":      {apierrors.NewTooManyRequests("later", 1), true},
		"internal error":  {apierrors.NewInternalError(errors.New("no etcd")), true},
		"nobody listens":  {errors.New("connection refused"), true},
		"it answers well": {nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
			defer cancel()
			err := waitForServer(ctx, "0", func(context.Context) error { return test.answer }, slog.New(slog.DiscardHandler))
			if waits := errors.Is(err, context.DeadlineExceeded); waits != test.waits || !waits && err != nil {
				t.Errorf("error %v", err)
			}
		})
	}
}
