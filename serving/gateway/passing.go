package gateway

import (
	"context"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gshare-dev/gshare/serving/gateway/http1"
)

// copyHeader copies the fields of a header, except those that apply to a single connection only.
func copyHeader(to, from http.Header) {
	for name, values := range from {
		to[name] = values
	}
	for _, list := range from["Connection"] {
		for name := range strings.SplitSeq(list, ",") {
			to.Del(strings.TrimSpace(name))
		}
	}
	for _, name := range []string{"Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade"} {
		delete(to, name)
	}
}

// onwardHeader returns the header with which a request is sent on.
func onwardHeader(in *http.Request) http.Header {
	out := make(http.Header, len(in.Header)+4)
	copyHeader(out, in.Header)
	delete(out, expectHeader) // the gateway has asked for the body itself
	if _, ok := out[userAgentHeader]; !ok {
		out[userAgentHeader] = nil // otherwise net/http adds its own
	}
	if isUpgrade(in) {
		askFor(out, in.Header)
	}
	if isGRPC(in) {
		out["Te"] = []string{"trailers"} // some servers require it
	}
	return out
}

// copyAnswerHeader copies the header of an answer. Without a Content-Type, net/http would make one up.
func copyAnswerHeader(to, from http.Header) {
	copyHeader(to, from)
	if _, ok := to[contentTypeHeader]; !ok {
		to[contentTypeHeader] = nil
	}
}

// notInTrailers are fields that frame or route a message, or say who sends it. They must not be in a trailer (RFC 9110, 6.5.1), where a receiver would
// have to ignore them.
var notInTrailers = []string{authorizationHeader, "Content-Length", "Host", "Trailer", "Transfer-Encoding"}

// onwardTrailer returns the trailer with which a request is sent on, nil if it is empty.
func onwardTrailer(in http.Header) (out http.Header) {
	for name, values := range in {
		if slices.Contains(notInTrailers, name) {
			continue
		}
		if out == nil {
			out = http.Header{}
		}
		out[name] = values
	}
	return out
}

// announceTrailer names in the header of an answer the fields that come in its trailer, as far as they are known.
func announceTrailer(header, trailer http.Header) {
	var names []string
	for name := range onwardTrailer(trailer) {
		names = append(names, name)
	}
	if len(names) > 0 {
		slices.Sort(names)
		header[trailerHeader] = []string{strings.Join(names, ", ")}
	}
}

// copyTrailer passes on the trailer of an answer, after its body.
func copyTrailer(w http.ResponseWriter, response *http.Response) {
	for name, values := range onwardTrailer(response.Trailer) {
		w.Header()[http.TrailerPrefix+name] = values
	}
}

// hints passes informational answers (1xx), such as 103 Early Hints, on to the client as they come.
type hints struct {
	trace httptrace.ClientTrace
	mu    sync.Mutex
	open  bool // a request is being sent, and its answer has not come

	dispatched bool // the gateway that has the request has said that a replica may have it
}

// withHints returns the context for a request that is sent on, so that informational answers to it are passed on while send runs.
func (e *exchange) withHints(ctx context.Context) context.Context {
	e.hints.trace.Got1xxResponse = e.hint
	return httptrace.WithClientTrace(ctx, &e.hints.trace)
}

// send sends a request on, and returns when the header of the answer comes.
func (e *exchange) send(upstream http.RoundTripper, request *http.Request) (*http.Response, error) {
	e.hints.setOpen(true)
	defer e.hints.setOpen(false)
	return upstream.RoundTrip(request)
}

// dispatchedHeader is in the informational answer by which a gateway tells another one that it sends the request to a replica now.
const dispatchedHeader = "X-Gshare-Dispatched"

// tellDispatched tells the gateway that has sent the request, if one has, that a replica may get it from now on. Until then, another gateway may serve it
// if this one fails. It says nothing of requests that may be served twice.
func (e *exchange) tellDispatched() {
	if !e.fromPeer || http1.IsRepeatable(e.request) || e.function.settings().Idempotent {
		return
	}
	header, controller := e.writer.Header(), http.NewResponseController(e.writer)
	header.Set(dispatchedHeader, "1")
	_ = controller.SetWriteDeadline(time.Now().Add(writeTimeout))
	e.writer.WriteHeader(http.StatusProcessing)
	_ = controller.SetWriteDeadline(time.Time{})
	header.Del(dispatchedHeader)
}

// wasDispatched reports whether another gateway has said that it sends the request to a replica.
func (h *hints) wasDispatched() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.dispatched
}

func (h *hints) setOpen(open bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.open = open
}

// hint passes an informational answer on. A transport may still call it after it has returned the final one.
func (e *exchange) hint(status int, from textproto.MIMEHeader) error {
	e.hints.mu.Lock()
	defer e.hints.mu.Unlock()
	if len(from[dispatchedHeader]) > 0 {
		e.hints.dispatched = true
		return nil
	}
	if !e.hints.open || status == http.StatusContinue || e.grpc || !e.request.ProtoAtLeast(1, 1) {
		return nil
	}
	header, controller := e.writer.Header(), http.NewResponseController(e.writer)
	copyHeader(header, http.Header(from))
	header.Del(reasonHeader)
	_ = controller.SetWriteDeadline(time.Now().Add(writeTimeout))
	e.writer.WriteHeader(status)
	_ = controller.SetWriteDeadline(time.Time{})
	clear(header)
	return nil
}
