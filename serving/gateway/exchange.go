package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"
)

// statusClientGone is the status of a request whose client left, or closed its sending side, before the answer.
const statusClientGone = 499

// exchange is one request and its answer.
type exchange struct {
	gateway  *Gateway
	function *function
	writer   http.ResponseWriter
	request  *http.Request
	sender   sender
	body     []byte
	start    time.Time
	deadline *time.Timer             // the client's; nil if it has not given one
	limit    *time.Timer             // without a deadline: bounds how long the replica takes until it begins to answer
	cancel   context.CancelCauseFunc // takes the request away from the replica
	grpc     bool
	fromPeer bool          // it comes from another gateway
	spent    time.Duration // for which other gateways have had the complete request
	// modelBody counts body from findModel on, until the function counts it or it is no longer in memory: among the bodies of all namespaces while the
	// caller is looked up, then among those of the function's namespace, where it stays while another gateway has the request.
	modelBody reservation
	rest      *restOfStream // what the client of a stream sends after its first message; nil for other requests
	hints     hints
	outcome
}

// outcome is what is logged and counted about an exchange.
type outcome struct {
	status  int // of the answer
	reason  string
	replica string
	queued  time.Duration
	tokens  tokenTimes
}

// report counts and logs the exchange.
func (e *exchange) report() {
	took := time.Since(e.start)
	e.function.measure(func(m *metrics) { m.observe(e.function.name, e.start, &e.outcome) })
	if !e.gateway.log.Enabled(e.request.Context(), slog.LevelDebug) {
		return
	}
	e.gateway.log.LogAttrs(e.request.Context(), slog.LevelDebug, "request", slog.String("function", e.function.name.String()), slog.Int("status", e.status),
		slog.String("reason", e.reason), slog.String("replica", e.replica), slog.Duration("queued", e.queued), slog.Duration("took", took))
}

func (e *exchange) refuse(why refusal) {
	e.status, e.reason = why.status, why.reason
	e.function.measure(func(m *metrics) { m.refused(e.function.name, why.reason) })
	e.write(why)
}

// write answers with a refusal in the form of the client's protocol.
func (e *exchange) write(why refusal) {
	if e.grpc {
		why.writeGRPC(e.writer)
		return
	}
	openAI := strings.HasPrefix(e.request.URL.Path, "/v1/")
	if e.function != nil {
		openAI = e.function.settings().Protocol == OpenAI
	}
	why.write(e.writer, openAI)
}

// reject refuses a request that has not arrived completely or is not valid.
func (e *exchange) reject(why refusal) {
	if why.reason == reasonBrokenOff {
		e.status, e.reason = statusClientGone, why.reason
		e.function.count(func(s *statistics) { s.reject(&s.counts.Gone) })
		e.write(why) // for a client that has closed only its sending side
		return
	}
	e.function.count(func(s *statistics) { s.reject(&s.counts.Refused) })
	e.refuse(why)
}

// loss returns why an exchange gets no complete answer, as a refusal, and the counter of requests that end so.
func (e *exchange) loss(ctx context.Context) (refusal, *uint64) {
	counts := &e.function.counts
	switch {
	case e.rest.isIdle():
		return newRefusal(causeIdle, fmt.Sprintf("nothing was sent for %v", idleTimeout)), &counts.Failed
	case e.request.Context().Err() != nil || e.rest.isBroken():
		return newRefusal(causeClientGone, "the client has broken off the call"), &counts.Gone
	case errors.Is(context.Cause(ctx), errStopping):
		return refuseStopping, &counts.Failed
	case errors.Is(context.Cause(ctx), errHung):
		return refuseHung, &counts.Failed
	case ctx.Err() != nil:
		return newRefusal(causeDeadline, "the deadline has passed"), &counts.Failed
	}
	return replicaFailed(true), &counts.Failed
}

// errHung is why a request is taken away from a replica that has not begun to answer within Function.Timeout; refuseHung is what its client gets.
var (
	errHung    = errors.New("the replica did not answer in time")
	refuseHung = newRefusal(causeDeadline, errHung.Error())
)

// giveUp ends an exchange that has not got an answer.
func (e *exchange) giveUp(why refusal) {
	if why.status != statusClientGone {
		e.refuse(why)
		return
	}
	e.status, e.reason = why.status, why.reason
	e.write(why) // the client may still read, if it has only closed its sending side
}
