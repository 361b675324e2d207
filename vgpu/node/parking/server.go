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

// Server is the server in a container, by its address (host:port) alone.
type Server struct{ Address string }

// maxAnswer is the greatest length of an answer that is read, in bytes.
const maxAnswer = 64 << 10

// client sends one request over each connection, to the address alone: not by a proxy, and not to where an answer points.
var client = &http.Client{
	Transport: &http.Transport{
		Proxy: nil, DisableKeepAlives: true, MaxResponseHeaderBytes: 16 << 10, DisableCompression: true,
		DialContext: (&net.Dialer{Timeout: 5 * time.Second}).DialContext,
	},
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

// statusError is an answer with another status than 200.
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

// isForeign reports whether an error of call says that the server has not what was asked for, or something else there.
func isForeign(err error) bool {
	status, ok := errors.AsType[*statusError](err)
	return ok && status.status < http.StatusInternalServerError || errors.Is(err, errNotJSON)
}

// call sends a request with a body, unless that is nil, and decodes the answer as JSON if it is to go somewhere. The error is a *statusError
// for another status than 200.
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

// printable returns the beginning of what a server says, as events can have it.
func printable(text []byte) string {
	const most = 120
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return ' '
		}
		return r
	}, string(bytes.TrimSpace(text[:min(len(text), most)])))
}

// pollPeriod is the time between two looks at whether a server has done what it was told.
const pollPeriod = 100 * time.Millisecond

// poll looks until something is done, fails, or ctx ends.
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
