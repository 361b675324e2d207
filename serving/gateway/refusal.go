package gateway

import (
	"encoding/json"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// refusal is the reason for which a request is not answered by a replica.
type refusal struct {
	status int
	reason string // one of those below
	text   string
	again  time.Time // when the client may try again; zero: soon
}

func newRefusal(status int, reason, text string) refusal {
	return refusal{status: status, reason: reason, text: text}
}

// backOff is a time during which a function has no replicas and starts none.
type backOff struct {
	until time.Time
	why   string
}

// maxWhy is the number of characters to which the reason in an answer is shortened: it may contain a line of the replica's output.
const maxWhy = 300

// refusal returns the refusal of a request to the function.
func (b *backOff) refusal() refusal {
	why := []rune(strings.ToValidUTF8(b.why, "\uFFFD"))
	if len(why) > maxWhy {
		why = append(why[:maxWhy], '…')
	}
	return refusal{http.StatusServiceUnavailable, reasonBackOff, "no replica serves the function: " + string(why), b.until}
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
)

// write answers with the refusal in the form of the Open Inference Protocol, {"error": "..."}, or in OpenAI's form, the only one that its clients can
// read: {"error": {"message": "...", ...}}.
func (r refusal) write(w http.ResponseWriter, openAI bool) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set(reasonHeader, r.reason)
	if r.status == http.StatusTooManyRequests || r.status == http.StatusServiceUnavailable {
		h.Set("Retry-After", strconv.Itoa(max(1, int(math.Ceil(time.Until(r.again).Seconds())))))
	}
	var content any = r.text
	if openAI {
		content = map[string]any{"message": r.text, "type": r.reason, "param": nil, "code": r.reason}
	}
	text, _ := json.Marshal(map[string]any{"error": content}) // never fails for strings
	h.Set("Content-Length", strconv.Itoa(len(text)))
	w.WriteHeader(r.status)
	_, _ = w.Write(text) // the client has gone if it fails
}
