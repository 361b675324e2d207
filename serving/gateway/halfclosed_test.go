package gateway

import (
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// halfClosed is a connection whose client closes its sending side a second after the request, and still reads.
type halfClosed struct {
	net.Conn
	request *strings.Reader
}

func (c *halfClosed) Read(b []byte) (int, error) {
	if c.request.Len() == 0 {
		time.Sleep(time.Second)
	}
	return c.request.Read(b)
}

// TestHalfClosed checks that a client that closes its sending side after the request never takes what it gets for a whole answer.
func TestHalfClosed(t *testing.T) {
	const request = "POST /v1/completions HTTP/1.1\r\nHost: resnet\r\nContent-Length: 1\r\n\r\na"
	for name, c := range map[string]struct {
		replica http.Handler // nil: none
		want    string       // how the answer begins; empty: nothing comes
	}{
		"no replica":   {nil, "HTTP/1.1 499 "},
		"no answer":    {hangs, "HTTP/1.1 499 "},
		"whole stream": {&streamsEvents{begin: tokenEvent, end: doneEvent, stays: true}, "HTTP/1.1 200 "},
		"part stream":  {&streamsEvents{begin: tokenEvent, prefill: time.Minute, tokens: 1}, "HTTP/1.1 200 "},
	} {
		for _, protocol := range []Protocol{HTTP, OpenAI} {
			t.Run(name+", "+protocol.String(), func(t *testing.T) {
				start(t, Function{Protocol: protocol}, func(w *world) {
					if c.replica != nil {
						w.replicas(c.replica, 1, 0, "a")
					}
					here, there := net.Pipe()
					w.network.servers["gateway:80"].connections <- &halfClosed{there, strings.NewReader(request)}
					_ = here.SetReadDeadline(time.Now().Add(time.Hour))
					got, err := io.ReadAll(here)
					if text := string(got); err != nil || !strings.HasPrefix(text, c.want) {
						w.Errorf("%q %v", text, err)
					} else if complete := strings.HasSuffix(text, "0\r\n\r\n"); complete != (strings.Contains(text, "[DONE]") && protocol == OpenAI) && c.want != "" {
						w.Errorf("%q: a part seems to be the whole", text)
					}
					time.Sleep(time.Second)
					if l := w.gateway.Load(resnet); l.InFlight != 0 || l.Waiting != 0 || w.avoided() != 0 {
						w.Errorf("%+v", l)
					}
				})
			})
		}
	}
}
