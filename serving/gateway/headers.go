package gateway

import (
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/gshare-dev/gshare/serving/gateway/http1"
)

// Headers of requests that decide what a gateway does, as http.Header spells them. docs/serving-call.md has a row for each.
const (
	authorizationHeader = "Authorization"
	contentTypeHeader   = "Content-Type"
	grpcTimeoutHeader   = "Grpc-Timeout"

	envoyTimeoutHeader = "X-Envoy-Expected-Rq-Timeout-Ms" // of Envoy: how long the client waits
	firstTokenHeader   = "X-Slo-Ttft-Ms"                  // of inference gateways: how long it waits for the first token of a streamed answer

	forwardedForHeader    = "X-Forwarded-For"
	acceptHeader          = "Accept"
	contentEncodingHeader = "Content-Encoding"
	cookieHeader          = "Cookie"
	expectHeader          = "Expect"
	connectionHeader      = "Connection"
	requestHeadersHeader  = "Access-Control-Request-Headers"
	trailerHeader         = "Trailer"
	userAgentHeader       = "User-Agent"
	upgradeHeader         = "Upgrade"
)

// Headers of the requests that a gateway forwards to another one. In the requests of clients they mean nothing.
const (
	// elapsedHeader is a header of all these requests. It says for how many microseconds the first gateway has had the request. A deadline given
	// by the client counts from then on.
	elapsedHeader = "X-Gshare-Elapsed-Us"
	// spentHeader is a header like elapsedHeader. It says for how many microseconds the first gateway has had the complete request, 0 if it has not
	// arrived completely. The function's objective counts from then on.
	spentHeader = "X-Gshare-Spent-Us"
)

// timeoutHeaders say how long the client waits, in milliseconds; the first one present counts.
var timeoutHeaders = []string{envoyTimeoutHeader, firstTokenHeader}

// batchHeaders are the headers of a request that are sent with its batch. All parts of a batch have the same values of them.
var batchHeaders = []string{acceptHeader, contentTypeHeader}

// aloneHeaders are the headers of requests that are not batched: those with credentials, which must not be mixed with other requests, and those whose
// bodies cannot be read.
var aloneHeaders = []string{authorizationHeader, contentEncodingHeader, cookieHeader, expectHeader}

// demands is what a client asks for by headers of its request. Its item keeps it, for the decisions about the request.
type demands struct {
	timeout time.Duration // how long the client waits for the answer, according to the body if no header says it; 0 if it does not say
	// repeatable says that it does no harm if the request is served twice (RFC 9110, 9.2.2), according to its method or its Idempotency-Key.
	repeatable bool
	stream     bool // it lasts as long as the client likes, as a stream or a WebSocket does, which says nothing about the latency of requests
}

// demands reads the headers of the request.
func (e *exchange) demands() (d demands, err error) {
	d.timeout, err = clientTimeout(e.request.Header, e.grpc)
	d.repeatable = http1.IsRepeatable(e.request)
	return d, err
}

// clientTimeout returns how long the client will wait for the answer, or 0 if it does not say.
func clientTimeout(h http.Header, grpc bool) (time.Duration, error) {
	if grpc {
		if d, err := parseGRPCTimeout(h.Get(grpcTimeoutHeader)); d != 0 || err != nil {
			return d, err
		}
	}
	for _, name := range timeoutHeaders {
		text := h.Get(name)
		if text == "" {
			continue
		}
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n < 1 || n > int64(24*time.Hour/time.Millisecond) {
			return 0, fmt.Errorf("header %s: %.32q is no number of milliseconds from 1 to a day", name, text)
		}
		return time.Duration(n) * time.Millisecond, nil
	}
	return 0, nil
}
