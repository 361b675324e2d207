package main

import (
	"fmt"
	"net/http"
	"strings"

	"golang.org/x/time/rate"
	"k8s.io/client-go/rest"
)

// Limits of the writes to the API server per second. 10,000 functions that scale need about 80. After the API server was slow or away, all
// writes that were put off come at once. Even then they must stay below 100 per second over any ten seconds: 10 x writesPerSecond +
// writesAtOnce. Reports get less than that, so that some writes are left for pods and shares, which requests wait for.
const (
	writesPerSecond  = 90
	writesAtOnce     = 50
	reportsPerSecond = 60 // statuses and events
	reportsAtOnce    = 20
)

// writeLimit delays writes to the API server that exceed the limits. It does not delay reads, watches, or renewals of the lease, which would
// expire within seconds.
type writeLimit struct {
	next            http.RoundTripper
	writes, reports *rate.Limiter
}

// limitWrites limits the writes of all clients that are made from config, in total.
func limitWrites(config *rest.Config) {
	writes, reports := rate.NewLimiter(writesPerSecond, writesAtOnce), rate.NewLimiter(reportsPerSecond, reportsAtOnce)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return &writeLimit{next: next, writes: writes, reports: reports}
	})
}

// RoundTrip sends a request as soon as the limits allow. If the context of a write ends before that, it returns an error, and the write has not
// been sent.
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

// WrappedRoundTripper lets client-go find the wrapped transport, whose idle connections it closes.
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
