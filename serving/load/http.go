package load

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"syscall"
	"time"

	"github.com/gshare-dev/gshare/serving/openai"
)

// HTTP sends the same HTTP request again and again.
type HTTP struct {
	Method string
	URL    string
	Header http.Header // Host sets the host that the request names
	Body   []byte
	// Stream reads answers as server-sent events, as OpenAI's API sends them: each event from the first with content on counts as a token, as it does
	// for a gateway, and an answer without any is a failure.
	Stream bool
	Client *http.Client // NewHTTPClient returns one
}

// NewHTTPClient returns a client that keeps as many connections open as there are concurrent requests, and follows no redirects.
func NewHTTPClient() *http.Client {
	return &http.Client{
		Transport: &http.Transport{
			DialContext:         (&net.Dialer{Timeout: 10 * time.Second}).DialContext,
			MaxIdleConnsPerHost: 1 << 16,
			IdleConnTimeout:     time.Minute,
			DisableCompression:  true,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// Send implements Sender.
func (h *HTTP) Send(ctx context.Context, _ int) Answer {
	request, err := http.NewRequestWithContext(ctx, h.Method, h.URL, bytes.NewReader(h.Body))
	if err != nil {
		return Answer{Status: err.Error()}
	}
	for name, values := range h.Header {
		request.Header[name] = values
	}
	if host := h.Header.Get("Host"); host != "" {
		request.Host = host
	}
	response, err := h.Client.Do(request)
	if err != nil {
		return Answer{Status: reason(err)}
	}
	defer response.Body.Close()
	if response.StatusCode/100 != 2 {
		_, _ = io.Copy(io.Discard, response.Body) // so that the connection can be used again
		return Answer{Status: statusReason(response)}
	}
	if h.Stream {
		return readEvents(response.Body)
	}
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		return Answer{Status: reason(err)}
	}
	return Answer{OK: true}
}

// statusReason returns the status of a failed request, with gshare's reason if the gateway gave one.
func statusReason(r *http.Response) string {
	if why := r.Header.Get("X-Gshare-Reason"); why != "" {
		return fmt.Sprintf("%d %.64s", r.StatusCode, why)
	}
	return strconv.Itoa(r.StatusCode)
}

// readEvents reads an answer of server-sent events.
func readEvents(body io.Reader) (a Answer) {
	var events openai.Stream
	buffer := make([]byte, 4<<10)
	for {
		n, err := body.Read(buffer)
		events.Read(buffer[:n])
		if a.Tokens = events.Tokens; a.Tokens > 0 && a.First.IsZero() {
			a.First = time.Now()
		}
		switch {
		case errors.Is(err, io.EOF) && a.Tokens == 0:
			a.Status = "no events"
			return a
		case errors.Is(err, io.EOF):
			a.OK = true
			return a
		case err != nil:
			a.Status = reason(err)
			return a
		}
	}
}

// reason returns a short text for an error that is equal for equal causes, whatever the addresses.
func reason(err error) string {
	var timeout interface{ Timeout() bool }
	switch {
	case errors.Is(err, context.Canceled):
		return "cancelled"
	case errors.As(err, &timeout) && timeout.Timeout():
		return "timeout"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "connection refused"
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return "connection reset"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "connection closed"
	}
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return err.Error()
		}
		err = inner
	}
}
