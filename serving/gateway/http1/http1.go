// Package http1 sends requests to HTTP/1.1 servers, in plain text and without goroutines of its own for each connection.
//
// http.Transport has two goroutines per connection, since a server may answer before it has read the whole request, and neither side may then wait
// for the other. Waking them takes a third of the processor time of a proxy for small requests. But a request that fits into the kernel's buffers of
// an idle connection is sent without waiting, so the goroutine that wants the answer can send the request and then read.
package http1

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// maxBody is the largest body that is sent in one write: with room for headers, less than Linux buffers for any connection (tcp_wmem, 16 KiB).
const maxBody = 12 << 10

// Transport is an http.RoundTripper that several goroutines may use. A request's context applies until the answer's body has been read or closed.
// Like http.Transport, it sends a request once more if an idle connection turns out to be closed and the request either was not sent or may be
// repeated (RFC 9110, 9.2.2).
type Transport struct {
	// Dial connects to a server; if nil, it is DialContext of NewDialer(maxUnacknowledged).
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Others gets the requests that Transport does not handle: those with larger bodies, or bodies of unknown length, those over TLS, and
	// those that ask for another protocol.
	Others http.RoundTripper

	idle idle
}

// RoundTrip sends a request and returns when the header of the answer has arrived.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if !isSmall(r) {
		return t.Others.RoundTrip(r)
	}
	text := buffers.Get().(*bytes.Buffer)
	defer buffers.Put(text)
	text.Reset()
	if err := r.Write(text); err != nil { // Write closes the body
		return nil, err
	}
	for {
		c, err := t.connect(r.Context(), r.URL.Host)
		if err != nil {
			return nil, cmp.Or(context.Cause(r.Context()), err)
		}
		response, err := c.exchange(r, text.Bytes())
		if err == nil {
			return response, nil
		}
		switch {
		case r.Context().Err() != nil:
			return nil, context.Cause(r.Context())
		case c.used && (errors.Is(err, ErrUnsent) || errors.Is(err, errUnanswered) && IsRepeatable(r)):
			continue
		}
		return nil, err
	}
}

// CloseIdleConnections closes the connections that no request uses.
func (t *Transport) CloseIdleConnections() {
	t.idle.closeAll()
	if others, ok := t.Others.(interface{ CloseIdleConnections() }); ok {
		others.CloseIdleConnections()
	}
}

var buffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

func isSmall(r *http.Request) bool {
	known := r.Body == nil || r.Body == http.NoBody || r.ContentLength > 0
	return known && r.ContentLength >= 0 && r.ContentLength <= maxBody && r.URL.Scheme == "http" && r.Method != http.MethodConnect && len(r.Trailer) == 0 && len(r.Header["Upgrade"]) == 0
}

// IsRepeatable reports whether it does no harm if a server gets the request twice.
func IsRepeatable(r *http.Request) bool {
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		return true
	}
	return r.Header["Idempotency-Key"] != nil || r.Header["X-Idempotency-Key"] != nil
}

// connect returns a connection that was idle, or a new one.
func (t *Transport) connect(ctx context.Context, address string) (*connection, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if c := t.idle.take(address, time.Now()); c != nil {
		return c, nil
	}
	dial := t.Dial
	if dial == nil {
		dial = dialer.DialContext
	}
	network, err := dial(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	return newConnection(network, address, &t.idle), nil
}

const (
	dialTimeout = 5 * time.Second // within which a request for a connection is sent several times
	// maxUnacknowledged can be short: a request of maxBody fits into what the server's kernel takes and acknowledges whether the server reads it or not.
	maxUnacknowledged = 15 * time.Second
)

var dialer = NewDialer(maxUnacknowledged)

// NewDialer returns a dialer for connections to servers that may vanish without a word, because their node has lost its power or network. A connection
// fails when what was sent has not been acknowledged for a time, and at the second keepalive probe after that time if nothing is being sent; otherwise
// Linux would wait for about 15 and 2 minutes. A server that does not read more than its kernel takes for it fails in the same way.
func NewDialer(unacknowledged time.Duration) *net.Dialer {
	return &net.Dialer{Timeout: dialTimeout, Control: func(_, _ string, socket syscall.RawConn) error {
		var err error
		if failed := socket.Control(func(fd uintptr) {
			err = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(unacknowledged.Milliseconds()))
		}); failed != nil {
			return failed
		}
		return err
	}}
}

// The errors after which a request may be sent on another connection.
var (
	// ErrUnsent is what the error of a request wraps that did not reach the server.
	ErrUnsent     = errors.New("nothing of the request was sent")
	errUnanswered = errors.New("the server closed the connection and did not answer")
)

// errStatus is the error of an answer after which its connection no longer speaks HTTP.
func errStatus(code int) error { return fmt.Errorf("http1: unexpected status %d", code) }
