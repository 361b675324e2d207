package http1

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// maxHeader is how many bytes of an answer may come before its body, including those of informational (1xx) answers.
const maxHeader = 1 << 20

var errHeaderTooLong = fmt.Errorf("http1: the header of the answer has more than %d bytes", maxHeader)

// connection is a connection to a server. It has one user at a time.
type connection struct {
	network   net.Conn
	raw       syscall.RawConn // nil where network is no socket
	address   string
	idle      *idle
	reader    *bufio.Reader
	left      int       // bytes that may still be read
	written   uint64    // bytes
	used      bool      // an earlier request has used it
	idleSince time.Time // only valid while it is idle
	abort     func()    // closes it
	watch     [1]byte   // memory for isOpen
	alive     bool      // result of peek for isOpen
	look      func(uintptr) bool
}

func newConnection(network net.Conn, address string, idle *idle) *connection {
	c := &connection{network: network, address: address, idle: idle}
	if socket, ok := network.(syscall.Conn); ok {
		c.raw, _ = socket.SyscallConn() // if it fails, so does all that follows
	}
	c.reader = bufio.NewReader(c)
	c.abort = func() { _ = network.Close() } // the error does not matter: it is not used any more
	c.look = c.peek
	return c
}

// Read reads from the network for reader, at most left bytes.
func (c *connection) Read(p []byte) (int, error) {
	if c.left <= 0 {
		return 0, errHeaderTooLong
	}
	n, err := c.network.Read(p[:min(len(p), c.left)])
	c.left -= n
	return n, err
}

// exchange sends a request, whose encoded form is text, and returns its answer. If it fails, the connection is closed.
func (c *connection) exchange(r *http.Request, text []byte) (*http.Response, error) {
	stop := context.AfterFunc(r.Context(), c.abort)
	response, err := c.send(r, text)
	if err != nil {
		stop()
		c.abort()
		return nil, err
	}
	b := &body{ReadCloser: response.Body, connection: c, ctx: r.Context(), stop: stop, keep: !response.Close && !r.Close}
	if response.Body == http.NoBody {
		b.end(true)
	} else {
		response.Body = b
	}
	return response, nil
}

// send does what exchange does, up to the body of the answer.
func (c *connection) send(r *http.Request, text []byte) (*http.Response, error) {
	before := c.written
	n, unsent := c.network.Write(text)
	c.written += uint64(n)
	if unsent != nil && n == 0 {
		return nil, fmt.Errorf("%w: %w", ErrUnsent, unsent)
	}
	c.left = maxHeader
	if _, err := c.reader.Peek(1); err != nil {
		switch {
		case unsent != nil:
			err = unsent
		case errors.Is(err, io.EOF) && c.used && !c.received(before):
			err = fmt.Errorf("%w: the server had closed the connection", ErrUnsent)
		case errors.Is(err, io.EOF), errors.Is(err, syscall.ECONNRESET):
			err = errUnanswered
		}
		return nil, err
	}
	for {
		response, err := http.ReadResponse(c.reader, r)
		switch {
		case err != nil && c.left <= 0:
			return nil, errHeaderTooLong
		case err != nil:
			return nil, err
		case response.StatusCode == http.StatusSwitchingProtocols:
			return nil, errStatus(response.StatusCode)
		case response.StatusCode >= 200 || response.StatusCode < 100:
			c.left = math.MaxInt
			response.Close = response.Close || unsent != nil // the server has answered before it had the whole request
			return response, nil
		}
		if trace := httptrace.ContextClientTrace(r.Context()); trace != nil && trace.Got1xxResponse != nil {
			if err := trace.Got1xxResponse(response.StatusCode, textproto.MIMEHeader(response.Header)); err != nil {
				return nil, err
			}
		}
	}
}

// received reports whether the server has received more than the first bytes that were written before it closed the connection: the end that it has sent
// acknowledges what it had until then. If it had received nothing of a request, it cannot have begun to serve it.
func (c *connection) received(before uint64) bool {
	received := true
	if c.raw != nil {
		_ = c.raw.Control(func(fd uintptr) { // if it fails, the server may have received it
			info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
			received = err != nil || info.Bytes_acked != before+1 // the beginning of the connection counts as one; kernels that do not count say 0
		})
	}
	return received
}

// isOpen reports whether an idle connection can be used: the server has neither closed it nor sent anything unasked.
func (c *connection) isOpen() bool {
	if c.raw == nil {
		return true
	}
	c.alive = false
	return c.raw.Read(c.look) == nil && c.alive
}

// peek looks into the receive buffer of a socket, which is empty if the connection is open.
func (c *connection) peek(fd uintptr) bool {
	_, _, err := syscall.Recvfrom(int(fd), c.watch[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
	c.alive = errors.Is(err, syscall.EAGAIN)
	return true
}

// body is the body of an answer. When it has been read to its end, the connection becomes idle; when it is closed before that, so is the connection.
type body struct {
	io.ReadCloser
	connection *connection
	ctx        context.Context
	stop       func() bool // stops ctx from closing the connection; false if it has done so already
	keep       bool        // the connection may be used again
	ended      atomic.Bool
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err == nil {
		return n, nil
	}
	b.end(errors.Is(err, io.EOF))
	if !errors.Is(err, io.EOF) && b.ctx.Err() != nil {
		err = context.Cause(b.ctx)
	}
	return n, err
}

// Close may be called while Read is running, which then fails.
func (b *body) Close() error {
	b.end(false)
	return nil
}

// end makes the connection idle if the answer is complete, or else closes it.
func (b *body) end(whole bool) {
	if b.ended.Swap(true) {
		return
	}
	c := b.connection
	if !b.stop() || !whole || !b.keep || c.reader.Buffered() > 0 {
		c.abort()
		return
	}
	c.used = true
	c.idle.put(c, time.Now())
}
