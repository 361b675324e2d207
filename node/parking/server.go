package parking

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"
)

// Server is the server in a container. Only its address (host:port) is known.
type Server struct{ Address string }

// maxAnswer is the maximum length, in bytes, of an answer that is read.
const maxAnswer = 64 << 10

// client sends one request per connection, and only to the given address: it uses no proxy and follows no redirects.
var client = &http.Client{
	Transport: &http.Transport{
		Proxy: nil, DisableKeepAlives: true, MaxResponseHeaderBytes: 16 << 10, DisableCompression: true,
		DialContext: (&net.Dialer{Timeout: 5 * time.Second}).DialContext,
	},
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

// statusError is the error for an answer with a status other than 200.
type statusError struct {
	status int
	text   string
}

func (e *statusError) Error() string {
	if e.text == "" {
		return fmt.Sprintf("status %d", e.status)
	}
	return fmt.Sprintf("status %d: %s", e.status, e.text)
}

var errNotJSON = errors.New("the answer is not the JSON that was expected")

// isForeign reports whether an error of call means that the server does not offer what was requested, or offers something else at that path.
func isForeign(err error) bool {
	status, ok := errors.AsType[*statusError](err)
	return ok && status.status < http.StatusInternalServerError || errors.Is(err, errNotJSON)
}

// call sends a request, with a body unless that is nil, and decodes the answer as JSON unless answer is nil. The error is a *statusError for
// a status other than 200.
func (s Server) call(ctx context.Context, method, path string, body, answer any) error {
	var content io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return err
		}
		content = bytes.NewReader(text)
	}
	request, err := http.NewRequestWithContext(ctx, method, "http://"+s.Address+path, content)
	if err != nil {
		return err
	}
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer+1))
	switch {
	case err != nil:
		return err
	case response.StatusCode != http.StatusOK:
		return &statusError{response.StatusCode, printable(text)}
	case len(text) > maxAnswer:
		return fmt.Errorf("%s answers more than %d bytes", path, maxAnswer)
	case answer == nil:
		return nil
	}
	if err := json.Unmarshal(text, answer); err != nil {
		return fmt.Errorf("%s: %w: %v", path, errNotJSON, err)
	}
	return nil
}

// printable returns the beginning of a server's text, in a form that is safe for events.
func printable(text []byte) string {
	const most = 120
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return ' '
		}
		return r
	}, string(bytes.TrimSpace(text[:min(len(text), most)])))
}

// pollPeriod is the time between two checks of whether a server has done what it was told to do.
const pollPeriod = 100 * time.Millisecond

// poll calls done repeatedly, until it returns true or an error, or ctx ends.
func poll(ctx context.Context, done func() (bool, error)) error {
	for {
		if ok, err := done(); ok || err != nil {
			return err
		}
		select {
		case <-time.After(pollPeriod):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
