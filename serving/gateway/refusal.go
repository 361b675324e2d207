package gateway

import (
	"encoding/json"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
)

// refusal is the answer to a request that no replica answers. That with status 0 is none.
type refusal struct {
	cause
	text  string
	again time.Time // when the client may try again; zero: soon
	once  bool      // the request may have been served, and must not be twice
}

func newRefusal(c cause, text string) refusal { return refusal{cause: c, text: text} }

// backOff is a time during which a function has no replicas and starts none.
type backOff struct {
	until time.Time
	why   string
}

// outlasts reports whether an item cannot wait until the back-off ends.
func (b *backOff) outlasts(it *item) bool { return !b.until.Before(it.waitsUntil()) }

// maxWhy is the number of characters to which the reason in an answer is shortened: it may contain a line of the replica's output.
const maxWhy = 300

// refusal returns the refusal of a request to the function.
func (b *backOff) refusal() refusal {
	why := []rune(strings.ToValidUTF8(b.why, "\uFFFD"))
	if len(why) > maxWhy {
		why = append(why[:maxWhy], '…')
	}
	return refusal{cause: causeBackOff, text: "no replica serves the function: " + string(why), again: b.until}
}

// reasonHeader is a header of every answer that is a refusal by a gateway, and of no other answer.
const reasonHeader = "X-Gshare-Reason"

// Reasons of refusals, in reasonHeader.
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
	reasonBackOff     = "backing-off"
	reasonReplica     = "replica-failed"
	reasonGateway     = "gateway-failed"
	reasonIdle        = "stream-idle"
	reasonNotGRPC     = "not-grpc"
	reasonStopping    = "shutting-down"

	reasonCaller        = "caller-not-allowed"
	reasonCallerUnknown = "caller-unknown"
)

// cause is why a request is refused: what its client sees over HTTP and over gRPC.
type cause struct {
	status int
	reason string
	code   codes.Code
}

// All causes. Those that share a reason differ in the status. docs/serving-call.md has a row for each reason.
var (
	causeUnknown       = cause{http.StatusNotFound, reasonUnknown, codes.NotFound}
	causeCaller        = cause{http.StatusForbidden, reasonCaller, codes.PermissionDenied}
	causeCallerUnknown = cause{http.StatusServiceUnavailable, reasonCallerUnknown, codes.Unavailable}
	causeBadRequest    = cause{http.StatusBadRequest, reasonBadRequest, codes.InvalidArgument}
	causeMethod        = cause{http.StatusMethodNotAllowed, reasonBadRequest, codes.InvalidArgument}
	causeSlowBody      = cause{http.StatusRequestTimeout, reasonBadRequest, codes.DeadlineExceeded}
	causeLongHeader    = cause{http.StatusRequestHeaderFieldsTooLarge, reasonBadRequest, codes.InvalidArgument}
	causeShortBody     = cause{http.StatusBadRequest, reasonBrokenOff, codes.Canceled}
	causeClientGone    = cause{statusClientGone, reasonBrokenOff, codes.Canceled}
	causeTooLarge      = cause{http.StatusRequestEntityTooLarge, reasonTooLarge, codes.ResourceExhausted}
	causeQueueFull     = cause{http.StatusTooManyRequests, reasonQueueFull, codes.ResourceExhausted}
	causePredictedLate = cause{http.StatusTooManyRequests, reasonLate, codes.DeadlineExceeded}
	causeLate          = cause{http.StatusGatewayTimeout, reasonLate, codes.DeadlineExceeded}
	causeDeadline      = cause{http.StatusGatewayTimeout, reasonDeadline, codes.DeadlineExceeded}
	causeHoldFull      = cause{http.StatusServiceUnavailable, reasonHoldFull, codes.Unavailable}
	causeHoldExpired   = cause{http.StatusServiceUnavailable, reasonHoldExpired, codes.Unavailable}
	causeBackOff       = cause{http.StatusServiceUnavailable, reasonBackOff, codes.Unavailable}
	causeReplica       = cause{http.StatusBadGateway, reasonReplica, codes.Unavailable}
	causeGateway       = cause{http.StatusBadGateway, reasonGateway, codes.Unavailable}
	causeIdle          = cause{http.StatusGatewayTimeout, reasonIdle, codes.DeadlineExceeded}
	causeNotGRPC       = cause{http.StatusNotImplemented, reasonNotGRPC, codes.Unimplemented}
	causeStopping      = cause{http.StatusServiceUnavailable, reasonStopping, codes.Unavailable}
)

// notRepeated says why a request was not sent again, where that might have helped.
const notRepeated = ", and may have served it: it is not sent again without an Idempotency-Key, unless its function is idempotent"

// replicaFailed returns the refusal of a request whose replica failed. repeatable is false if that is why it was not sent to another one.
func replicaFailed(repeatable bool) refusal {
	why := newRefusal(causeReplica, "the replica that had the request failed")
	if !repeatable {
		why = why.servedOnce()
	}
	return why
}

// servedOnce returns the refusal of a request that was not sent again because it may not be served twice.
func (r refusal) servedOnce() refusal {
	r.text, r.once = r.text+notRepeated, true
	return r
}

// helps reports whether it helps if the client tries again later: the gateway was too busy, or could not serve the function.
func (c cause) helps() bool {
	return c.status == http.StatusTooManyRequests || c.status == http.StatusServiceUnavailable || c == causeLate
}

// openAIType returns OpenAI's word for the kind of error.
func (c cause) openAIType() string {
	switch {
	case c.status == http.StatusTooManyRequests:
		return "rate_limit_error"
	case c.status >= 500 && c != causeNotGRPC:
		return "server_error"
	}
	return "invalid_request_error"
}

// write answers with the refusal in the form of the Open Inference Protocol, {"error": "..."}, or in OpenAI's form, the only one that its clients can
// read: {"error": {"message": "...", ...}}. OpenAI's clients repeat every request with status 408, 409, 429 or from 500 unless X-Should-Retry says no.
func (r refusal) write(w http.ResponseWriter, openAI bool) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set(reasonHeader, r.reason)
	if r.status == http.StatusMethodNotAllowed {
		h.Set("Allow", "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS")
	}
	if r.helps() {
		h.Set("Retry-After", strconv.Itoa(max(1, int(math.Ceil(time.Until(r.again).Seconds())))))
	}
	var content any = r.text
	if openAI {
		content = map[string]any{"message": r.text, "type": r.openAIType(), "param": nil, "code": r.reason}
		if r.once || r.status == http.StatusGatewayTimeout && !r.helps() {
			h.Set("X-Should-Retry", "false")
		}
	}
	text, _ := json.Marshal(map[string]any{"error": content}) // never fails for strings
	h.Set("Content-Length", strconv.Itoa(len(text)))
	w.WriteHeader(r.status)
	_, _ = w.Write(text) // the client has gone if it fails
}
