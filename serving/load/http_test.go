package load

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// TestHTTP sends requests to servers that answer, refuse, break off and stand still.
func TestHTTP(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		switch r.URL.Path {
		case "/ok":
			if r.Host != "resnet50.default" || r.Header.Get("X-Test") != "1" || string(body) != "input" || r.Method != http.MethodPost {
				w.WriteHeader(http.StatusBadRequest)
			}
		case "/refused":
			w.Header().Set("X-Gshare-Reason", "queue full")
			w.WriteHeader(http.StatusTooManyRequests)
		case "/moved":
			http.Redirect(w, r, "/ok", http.StatusFound)
		case "/closed":
			panic(http.ErrAbortHandler)
		case "/short":
			w.Header().Set("Content-Length", "100")
			fmt.Fprint(w, "short")
		case "/still":
			<-r.Context().Done()
		}
	}))
	defer server.Close()
	gone := httptest.NewServer(nil)
	gone.Close()
	for _, c := range []struct{ url, want string }{
		{server.URL + "/ok", ""},
		{server.URL + "/refused", "429 queue full"},
		{server.URL + "/moved", "302"},
		{server.URL + "/closed", "connection closed"},
		{server.URL + "/short", "connection closed"},
		{server.URL + "/still", "timeout"},
		{gone.URL, "connection refused"},
		{"http://\x7f", `parse "http://\x7f": net/url: invalid control character in URL`},
	} {
		t.Run(c.url[strings.LastIndexByte(c.url, '/')+1:], func(t *testing.T) {
			limit := time.Minute
			if c.want == "timeout" {
				limit = 100 * time.Millisecond
			}
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			h := &HTTP{
				Method: http.MethodPost, URL: c.url, Body: []byte("input"), Client: NewHTTPClient(),
				Header: http.Header{"Host": {"resnet50.default"}, "X-Test": {"1"}},
			}
			defer h.Client.CloseIdleConnections()
			if a := h.Send(ctx, 1); a.Status != c.want || a.OK != (c.want == "") {
				t.Errorf("%+v, want %q", a, c.want)
			}
		})
	}
}

// TestEvents reads streams of server-sent events: whole, empty and broken off.
func TestEvents(t *testing.T) {
	long := "data: " + strings.Repeat("x", 10_000) + "\n\n"
	for _, c := range []struct {
		name, text string
		tokens     int
		status     string
	}{
		{"three tokens", "data: {}\n\ndata: {}\n\n: comment\ndata:{}\n\ndata: [DONE]\n\n", 3, ""},
		{"long line", long + long, 2, ""},
		{"no end of line", "data: a\n\ndata: b", 1, ""},
		{"a role first", `data: {"choices":[{"delta":{"role":"assistant","content":""}}]}` + "\n\ndata: {}\n\n", 1, ""},
		{"only a role", `data: {"choices":[{"delta":{"role":"assistant"}}]}` + "\n\n", 0, "no events"},
		{"only the end", "data: [DONE]\n\n", 0, "no events"},
		{"nothing", "", 0, "no events"},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := readEvents(strings.NewReader(c.text))
			if a.Tokens != c.tokens || a.Status != c.status || a.OK != (c.status == "") || a.First.IsZero() != (c.tokens == 0) {
				t.Errorf("%+v", a)
			}
		})
	}
	broken := io.MultiReader(strings.NewReader("data: {}\n\n"), brokenReader{})
	if a := readEvents(broken); a.OK || a.Status != "connection closed" {
		t.Errorf("broken off: %+v", a)
	}
}

type brokenReader struct{}

func (brokenReader) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }
