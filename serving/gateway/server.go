package gateway

import (
	"log/slog"
	"net/http"
	"time"
)

// Bounds of a connection. See also bodyTimeout, for the body of a request, and writeTimeout, for a piece of its answer.
const (
	headerTimeout = 10 * time.Second // for the header of a request
	idleTimeout   = 2 * time.Minute  // between requests
	maxHeader     = 64 << 10         // bytes, to which net/http adds 4 KiB

	// For HTTP/2, whose connections carry many requests at once. net/http bounds the rest: frames of 1 MiB, 10,000 control frames that the client does
	// not take, and four times maxStreams requests that the client opened and gave up.
	maxStreams = 1000 // concurrent requests of a connection
	// maxUnread is how many bytes of a request may be on their way or unread, e.g. of a stream that waits for its turn. A connection has room for that
	// of all its requests, so that those that are not read do not stop the others: a proxy, or another gateway, sends the streams of all its clients over
	// one connection. It bounds what a client can send in a round trip: bodies of 64 MiB arrive in 30 s over round trips of up to 100 ms, and from another
	// gateway, in the same cluster, with a quarter of it.
	maxUnread     = 256 << 10
	maxPeerUnread = 64 << 10
	pingAfter     = 30 * time.Second // how long the peer may send no frame before it is sent a ping
	pingTimeout   = 15 * time.Second // how long the peer may take to answer the ping
)

// Server returns a server for the gateway, in which clients can neither keep a connection busy forever nor fill memory with headers. Its Shutdown
// waits for the answers to all requests that the gateway has accepted, and ends gRPC streams once their replicas have answered what they have got.
//
// It speaks HTTP/1.1 and, for gRPC, HTTP/2 without TLS to clients that know in advance that it does.
func (g *Gateway) Server() *http.Server {
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	s := &http.Server{
		Protocols: &protocols,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: maxStreams, SendPingTimeout: pingAfter, PingTimeout: pingTimeout, WriteByteTimeout: writeTimeout,
		},
		Handler: g, ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeader,
		ErrorLog: slog.NewLogLogger(g.log.Handler(), slog.LevelDebug),
	}
	limitUnread(s, maxUnread)
	s.RegisterOnShutdown(g.streams.stop)
	return s
}

// limitUnread lets each request of an HTTP/2 connection have so many bytes on their way or unread. net/http documents a bound of 4 MiB per
// connection, but has none.
func limitUnread(s *http.Server, bytes int) {
	s.HTTP2.MaxReceiveBufferPerStream, s.HTTP2.MaxReceiveBufferPerConnection = bytes, maxStreams*bytes
}
