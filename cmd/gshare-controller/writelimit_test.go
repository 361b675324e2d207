package main

import (
	"context"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"
)

// sent is when requests reached an API server, by their path.
type sent struct {
	mu sync.Mutex
	at map[string][]time.Time
}

func (s *sent) RoundTrip(r *http.Request) (*http.Response, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.at[r.URL.Path] = append(s.at[r.URL.Path], time.Now())
	return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
}

const (
	podsPath   = "/api/v1/namespaces/team/pods"
	statusPath = "/apis/gshare.dev/v1alpha1/namespaces/team/gpufunctions/a/status"
	eventsPath = "/apis/events.k8s.io/v1/namespaces/team/events"
	leasePath  = "/apis/coordination.k8s.io/v1/namespaces/gshare-system/leases/gshare-controller"
)

// limited returns two clients of one config, and what they sent.
func limited() ([2]http.RoundTripper, *sent) {
	server := &sent{at: map[string][]time.Time{}}
	config := &rest.Config{}
	limitWrites(config)
	return [2]http.RoundTripper{config.WrapTransport(server), config.WrapTransport(server)}, server
}

func request(t *testing.T, ctx context.Context, method, path string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, method, "https://127.0.0.1"+path, strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestWriteLimit: whatever was put off, no ten seconds have more writes than a hundred a second, of all clients together; pods and shares do not wait for
// statuses and events, and reads and the lease for nothing.
func TestWriteLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clients, server := limited()
		var all sync.WaitGroup
		send := func(n int, method, path string) {
			for i := range n {
				all.Go(func() {
					if _, err := clients[i%2].RoundTrip(request(t, t.Context(), method, path)); err != nil {
						t.Errorf("%s %s: %v", method, path, err)
					}
				})
			}
		}
		began := time.Now()
		send(2000, http.MethodPatch, statusPath)
		send(500, http.MethodPost, eventsPath)
		synctest.Wait() // they came first
		send(600, http.MethodPost, podsPath)
		send(300, http.MethodGet, podsPath+"/a")
		send(20, http.MethodPut, leasePath)
		all.Wait()
		for _, path := range []string{podsPath + "/a", leasePath} {
			if last := slices.MaxFunc(server.at[path], time.Time.Compare).Sub(began); last != 0 {
				t.Errorf("%s waited %v", path, last)
			}
		}
		// Reports take 60 of 90 writes a second meanwhile: 600 pods take no more than what is left needs.
		if last := slices.MaxFunc(server.at[podsPath], time.Time.Compare).Sub(began); last > 20*time.Second {
			t.Errorf("the last pod was created after %v", last)
		}
		writes := slices.Concat(server.at[podsPath], server.at[statusPath], server.at[eventsPath])
		slices.SortFunc(writes, time.Time.Compare)
		if len(writes) != 3100 {
			t.Errorf("%d writes, want 3100", len(writes))
		}
		for i := 1000; i < len(writes); i++ {
			if within := writes[i].Sub(writes[i-1000]); within < 10*time.Second {
				t.Fatalf("1001 writes within %v", within)
			}
		}
	})
}

// closed is a body that tells whether it was closed.
type closed struct {
	io.Reader
	is bool
}

func (c *closed) Close() error { c.is = true; return nil }

// TestWriteLimitEnds: a write whose time ends before it may be sent is not sent.
func TestWriteLimitEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clients, server := limited()
		for range writesAtOnce {
			if _, err := clients[0].RoundTrip(request(t, t.Context(), http.MethodDelete, podsPath)); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		body := &closed{Reader: strings.NewReader("{}")}
		r := request(t, ctx, http.MethodDelete, podsPath)
		r.Body = body
		if _, err := clients[1].RoundTrip(r); err == nil || !body.is {
			t.Errorf("error %v, body closed: %t", err, body.is)
		}
		if n := len(server.at[podsPath]); n != writesAtOnce {
			t.Errorf("%d writes, want %d", n, writesAtOnce)
		}
	})
}
