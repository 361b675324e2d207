package main

import (
	"fmt"
	"net/http"
	"strings"

	"golang.org/x/time/rate"
	"k8s.io/client-go/rest"
)

// Bounds of the writes to the API server, a second. 10,000 functions that scale need some 80. After the API server was slow or away everything that was
// put off comes at once, and it is to stay below 100 a second over any ten then too: 10 x writesPerSecond + writesAtOnce. Of these some are left to pods
// and shares, which requests wait for.
const (
	writesPerSecond  = 90
	writesAtOnce     = 50
	reportsPerSecond = 60 // statuses and events
	reportsAtOnce    = 20
)

// writeLimit delays writes to the API server that exceed the bounds. Reads and watches pass, and so does the lease, which is lost after some seconds.
type writeLimit struct {
	next            http.RoundTripper
	writes, reports *rate.Limiter
}

// limitWrites bounds the writes of all clients that are made from config, taken together.
func limitWrites(config *rest.Config) {
	writes, reports := rate.NewLimiter(writesPerSecond, writesAtOnce), rate.NewLimiter(reportsPerSecond, reportsAtOnce)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return &writeLimit{next: next, writes: writes, reports: reports}
	})
}

// RoundTrip sends a request, when it may be sent. A write whose context ends before that fails and has not been sent.
func (l *writeLimit) RoundTrip(r *http.Request) (*http.Response, error) {
	for _, limiter := range l.limitersOf(r) {
		if err := limiter.Wait(r.Context()); err != nil {
			if r.Body != nil {
				r.Body.Close()
			}
			return nil, fmt.Errorf("wait for the limit of writes: %w", err)
		}
	}
	return l.next.RoundTrip(r)
}

// WrappedRoundTripper lets client-go find the transport below, to close its idle connections.
func (l *writeLimit) WrappedRoundTripper() http.RoundTripper { return l.next }

func (l *writeLimit) limitersOf(r *http.Request) []*rate.Limiter {
	switch r.Method {
	case http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete:
	default:
		return nil
	}
	switch path := r.URL.Path; {
	case strings.Contains(path, "/apis/coordination.k8s.io/"):
		return nil
	case strings.HasSuffix(path, "/status"), strings.Contains(path, "/events"):
		return []*rate.Limiter{l.reports, l.writes}
	default:
		return []*rate.Limiter{l.writes}
	}
}
