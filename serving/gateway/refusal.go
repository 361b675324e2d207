package gateway

import (
	"encoding/json"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// refusal is why a request gets no answer of a replica.
type refusal struct {
	status int
	reason string // one of those below
	text   string
}

// Reasons of refusals, in the header X-Gshare-Reason.
const (
	reasonUnknown     = "unknown-function"
	reasonBadRequest  = "bad-request"
	reasonBrokenOff   = "client-gone"
	reasonTooLarge    = "body-too-large"
	reasonQueueFull   = "queue-full"
	reasonLate        = "predicted-late"
	reasonDeadline    = "deadline-passed"
	reasonHoldFull    = "hold-full"
	reasonHoldExpired = "hold-expired"
	reasonReplica     = "replica-failed"
)

// write answers with the refusal, in the form of the Open Inference Protocol: {"error": "..."}.
func (r refusal) write(w http.ResponseWriter) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("X-Gshare-Reason", r.reason)
	if r.status == http.StatusTooManyRequests || r.status == http.StatusServiceUnavailable {
		h.Set("Retry-After", "1")
	}
	text, _ := json.Marshal(map[string]string{"error": r.text}) // never fails for strings
	h.Set("Content-Length", strconv.Itoa(len(text)))
	w.WriteHeader(r.status)
	_, _ = w.Write(text) // the client has gone if it fails
}

// buffers holds buffers for the bodies of answers.
var buffers = sync.Pool{New: func() any { b := make([]byte, 32<<10); return &b }}

// newTransport returns a transport that keeps connections to replicas open.
func newTransport() *http.Transport {
	return &http.Transport{MaxIdleConnsPerHost: 1024, IdleConnTimeout: 90 * time.Second, DisableCompression: true, ResponseHeaderTimeout: 0}
}
