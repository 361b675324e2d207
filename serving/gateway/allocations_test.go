package gateway

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// upstream is a transport that answers each request itself.
type upstream struct{ body []byte }

func (u upstream) RoundTrip(r *http.Request) (*http.Response, error) {
	if _, err := io.Copy(io.Discard, r.Body); err != nil {
		return nil, err
	}
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, ContentLength: int64(len(u.body)), Body: io.NopCloser(bytes.NewReader(u.body))}, nil
}

// client receives a response as a connection does.
type client struct {
	header http.Header
	bytes  int
}

func (c *client) Header() http.Header               { return c.header }
func (c *client) WriteHeader(int)                   {}
func (c *client) SetReadDeadline(time.Time) error   { return nil }
func (c *client) Write(b []byte) (n int, err error) { c.bytes += len(b); return len(b), nil }

// TestAllocations limits what the gateway itself allocates for a request that it passes on, without the server and the transport.
func TestAllocations(t *testing.T) {
	g := New(Config{Upstream: upstream{make([]byte, 256)}, Metrics: prometheus.NewRegistry()})
	if err := g.SetFunction(Function{FunctionName: resnet, SLO: time.Hour}); err != nil {
		t.Fatal(err)
	}
	if err := g.SetReplicas(resnet, []Replica{{ID: "a", Address: "a:80", Credits: 64}}); err != nil {
		t.Fatal(err)
	}
	body := bytes.NewReader(make([]byte, 1024))
	r := httptest.NewRequest(http.MethodPost, "http://resnet/v1/predict", body)
	r.Header.Set("Content-Type", "application/octet-stream")
	c := &client{header: http.Header{}}
	ask := func() {
		body.Reset(make([]byte, 1024))
		r.Body = io.NopCloser(body)
		clear(c.header)
		g.ServeHTTP(c, r)
	}
	own := testing.AllocsPerRun(200, ask)
	if c.bytes != 201*256 {
		t.Fatalf("%d bytes of answers", c.bytes)
	}
	if own > 35 { // normally 31; more under the race detector, which empties pools
		t.Errorf("%v allocations a request", own)
	}
}

// TestManyCredits: how many credits pods claim to have does not decide how much memory a gateway needs.
func TestManyCredits(t *testing.T) {
	g := New(Config{Upstream: upstream{}, Metrics: prometheus.NewRegistry()})
	if err := g.SetFunction(Function{FunctionName: resnet, SLO: time.Hour, Protocol: OIP, MaxBatch: 2}); err != nil {
		t.Fatal(err)
	}
	if err := g.SetReplicas(resnet, []Replica{{ID: "a", Address: "a:80", Credits: 640_000}}); err != nil {
		t.Fatal(err)
	}
	f := g.function(resnet)
	f.mu.Lock()
	defer f.mu.Unlock()
	if n := len(f.batchingLoad(time.Now()).Replicas); n != 1 {
		t.Errorf("%d credits are looked at while no request waits, want 1", n)
	}
}
