package gateway

import (
	"log/slog"
	"net/http"
	"time"
)

// Bounds of a connection. bodyTimeout and writeTimeout are those of a request's body and of a part of its answer.
const (
	headerTimeout = 10 * time.Second // for the header of a request
	idleTimeout   = 2 * time.Minute  // between requests
	maxHeader     = 64 << 10         // bytes, to which net/http adds 4 KiB

	// Of HTTP/2, whose connections carry many requests at once. net/http bounds the rest: frames of 1 MiB, 1 MiB of a connection's bodies that
	// are not read yet, 10,000 control frames that the client does not take, and four times maxStreams of requests that it opened and gave up.
	maxStreams  = 1000             // requests of a connection at once
	pingAfter   = 30 * time.Second // without a frame of the peer, for which a ping is then sent
	pingTimeout = 15 * time.Second // for the answer
)

// Server returns a server of the gateway whose clients cannot keep a connection busy without end, or fill its memory with headers. Its Shutdown
// waits for the answers to all requests that the gateway has accepted, and ends streams of gRPC once their replicas have answered what they have.
//
// It speaks HTTP/1.1 and, for gRPC, HTTP/2 without TLS to clients that know that it does.
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
	s.RegisterOnShutdown(g.streams.stop)
	return s
}
