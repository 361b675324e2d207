package gateway

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"sync"
	"time"

	"github.com/gshare-dev/gshare/serving/gateway/http1"
)

// buffers holds buffers for the bodies of answers.
var buffers = sync.Pool{New: func() any { b := make([]byte, 32<<10); return &b }}

// newTransportGRPC returns a transport for HTTP/2 without TLS. By pings it notices a replica that has gone.
func newTransportGRPC() *http.Transport {
	t := newTransport()
	t.IdleConnTimeout = 90 * time.Second
	t.Protocols = new(http.Protocols)
	t.Protocols.SetUnencryptedHTTP2(true)
	t.HTTP2 = &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingTimeout}
	return t
}

// newPeerTransport returns a transport to other gateways, for HTTP/2 if it is for gRPC, otherwise for HTTP/1.1. If config is nil, it trusts no certificate.
func newPeerTransport(config *tls.Config, grpc bool) *http.Transport {
	t := newTransport()
	if grpc {
		t = newTransportGRPC()
	}
	t.Protocols = new(http.Protocols)
	t.Protocols.SetHTTP1(!grpc)
	t.Protocols.SetHTTP2(grpc)
	t.TLSHandshakeTimeout = headerTimeout
	t.TLSClientConfig = &tls.Config{RootCAs: x509.NewCertPool()}
	if config != nil {
		t.TLSClientConfig = config.Clone() // the transport adds its protocols to it
	}
	return t
}

// maxUnacknowledged is longer than for the small requests of package http1: a replica that computes may leave most of a large one unread, which TCP does
// not tell from a server that has gone. For HTTP/2 pings are faster.
const maxUnacknowledged = 2 * time.Minute

// maxIdle is how long a connection for HTTP/1.1 stays open between requests: less than common servers wait, uvicorn and Node for example 5 s. If one closes
// a connection while a request is being written, net/http does not say whether the server got it, and then it may not be sent again.
const maxIdle = 4 * time.Second

// newTransport returns a transport that keeps connections to replicas open.
func newTransport() *http.Transport {
	return &http.Transport{DialContext: http1.NewDialer(maxUnacknowledged).DialContext, MaxIdleConnsPerHost: 1024, IdleConnTimeout: maxIdle, DisableCompression: true, ResponseHeaderTimeout: 0}
}
