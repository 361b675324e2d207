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
)

// Server returns a server of the gateway whose clients cannot keep a connection busy without end, or fill its memory with headers. Its Shutdown
// waits for the answers to all requests that the gateway has accepted.
func (g *Gateway) Server() *http.Server {
	return &http.Server{
		Handler: g, ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeader,
		ErrorLog: slog.NewLogLogger(g.log.Handler(), slog.LevelDebug),
	}
}
