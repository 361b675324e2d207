package gateway

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
