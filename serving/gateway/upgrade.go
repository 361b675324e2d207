package gateway

import (
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"
)

// upgradeOf returns the protocol to which a client or a replica wants to switch its connection, such as websocket, or "" if to none. HTTP itself is no such
// protocol: requests to a replica in HTTP/2 would pass the gateway unseen.
func upgradeOf(h http.Header) string {
	values := h[upgradeHeader]
	if len(values) != 1 || !httpguts.HeaderValuesContainsToken(h[connectionHeader], "upgrade") {
		return ""
	}
	name := strings.ToLower(values[0])
	if version, _, _ := strings.Cut(name, "/"); !httpguts.ValidHeaderFieldName(version) || version == "h2c" || version == "h2" || version == "http" {
		return ""
	}
	return name
}

// isUpgrade reports whether a request asks for another protocol on its connection, which only HTTP/1.1 allows.
func isUpgrade(r *http.Request) bool {
	return r.ProtoMajor == 1 && r.ProtoMinor == 1 && upgradeOf(r.Header) != ""
}

// askFor adds to the header for a replica what copyHeader has left out of a request for another protocol.
func askFor(out, in http.Header) {
	out[connectionHeader], out[upgradeHeader] = []string{"Upgrade"}, in[upgradeHeader]
}

// switches reports whether an answer agrees to the protocol that a request asks for.
func switches(r *http.Request, response *http.Response) bool {
	return response.StatusCode == http.StatusSwitchingProtocols && isUpgrade(r) && upgradeOf(r.Header) == upgradeOf(response.Header)
}

// switchProtocols passes an answer with status 101 on, whose header has been set, and then what client and replica send in both directions until both have
// ended, one has failed, or nothing has come from either for idleTimeout. The request's context is not used: it ends as soon as the client has sent all.
func (e *exchange) switchProtocols(response *http.Response) {
	replica := response.Body.(io.ReadWriteCloser) // as http.Transport documents
	defer replica.Close()
	header := e.writer.Header()
	header[connectionHeader], header[upgradeHeader] = []string{"Upgrade"}, response.Header[upgradeHeader]
	e.writeStatus(http.StatusSwitchingProtocols)
	controller := http.NewResponseController(e.writer)
	_ = controller.Flush() // if it fails, so does what follows
	client, buffered, err := controller.Hijack()
	if err != nil {
		e.reason = reasonBrokenOff
		return
	}
	defer client.Close()
	idle := time.AfterFunc(idleTimeout, func() { client.Close(); replica.Close() })
	ends := make(chan error, 2)
	go func() { ends <- passOn(replica, buffered.Reader, idle) }()
	go func() { ends <- passOn(boundedConn{client}, replica, idle) }()
	if err := <-ends; err == nil {
		<-ends
	}
	if !idle.Stop() {
		e.reason = reasonIdle
	}
}

// passOn copies until from ends, and then ends what it has copied to. Each part that arrives restarts the timer.
func passOn(to io.Writer, from io.Reader, idle *time.Timer) error {
	buffer := buffers.Get().(*[]byte)
	defer buffers.Put(buffer)
	for {
		n, err := from.Read(*buffer)
		if n > 0 {
			idle.Reset(idleTimeout)
			if _, err := to.Write((*buffer)[:n]); err != nil {
				return err
			}
		}
		if err == nil {
			continue
		}
		if !errors.Is(err, io.EOF) {
			return err
		}
		if half, ok := to.(interface{ CloseWrite() error }); ok && half.CloseWrite() == nil {
			return nil
		}
		return io.EOF // the other direction cannot outlast this one
	}
}

// boundedConn is a connection to a client that has to take each part of what it gets within writeTimeout.
type boundedConn struct{ net.Conn }

func (c boundedConn) Write(b []byte) (int, error) {
	_ = c.SetWriteDeadline(time.Now().Add(writeTimeout))
	return c.Conn.Write(b)
}

func (c boundedConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return http.ErrNotSupported
}
