package faults

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"regexp"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"

	"github.com/gshare-dev/gshare/test/controlplane/access"
)

// proxy is a reverse proxy between a scheduler and the API server. It can inject faults into bind requests and live reads,
// and passes on everything else.
type proxy struct {
	url       string
	server    *httptest.Server
	target    *url.URL
	transport http.RoundTripper
	pass      http.Handler
	decide    func(pod string, attempt int) fate // the fate of a bind request; attempts count from 1
	readFails func(pod string, read int) bool    // whether a live read gets status 500; nil: none does
	late      sync.WaitGroup                     // requests to be forwarded after their response was sent

	mu       sync.Mutex     // guards the fields below
	attempts map[string]int // bind requests, by pod
	reads    map[string]int // live reads, by pod
	bound    map[string]int // bind requests that the API server carried out, by pod
	pending  map[string]int // late requests in flight, by pod
}

// fate handles a bind request: it forwards the request, responds to it, or both.
type fate func(p *proxy, b *bind)

// bind is one bind request.
type bind struct {
	pod  string
	w    http.ResponseWriter
	r    *http.Request
	body []byte
}

// startProxy starts a proxy that runs until the end of the test.
func (l *lab) startProxy(decide func(pod string, attempt int) fate) *proxy {
	l.t.Helper()
	to := common.Config(access.Scheduler)
	target, err := url.Parse(to.Host)
	l.must(err)
	transport, err := rest.TransportFor(to)
	l.must(err)
	p := &proxy{
		target: target, transport: transport, decide: decide,
		attempts: map[string]int{}, reads: map[string]int{}, bound: map[string]int{}, pending: map[string]int{},
		pass: &httputil.ReverseProxy{Transport: transport, Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }},
	}
	p.server = httptest.NewServer(p)
	p.url = p.server.URL
	l.t.Cleanup(p.server.CloseClientConnections)
	return p
}

var (
	bindPath = regexp.MustCompile(`^/api/v1/namespaces/[^/]+/pods/([^/]+)/binding$`)
	readPath = regexp.MustCompile(`^/api/v1/namespaces/[^/]+/pods/([^/]+)$`)
)

func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	match := bindPath.FindStringSubmatch(r.URL.Path)
	if match == nil || r.Method != http.MethodPost {
		p.passOn(w, r)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	b := &bind{pod: match[1], w: w, r: r, body: body}
	p.mu.Lock()
	p.attempts[b.pod]++
	attempt := p.attempts[b.pod]
	p.mu.Unlock()
	p.decide(b.pod, attempt)(p, b)
}

// passOn forwards a request other than a bind request, except for live reads that are to fail.
func (p *proxy) passOn(w http.ResponseWriter, r *http.Request) {
	match := readPath.FindStringSubmatch(r.URL.Path)
	if match == nil || r.Method != http.MethodGet || p.readFails == nil {
		p.pass.ServeHTTP(w, r)
		return
	}
	p.mu.Lock()
	p.reads[match[1]]++
	read := p.reads[match[1]]
	p.mu.Unlock()
	if p.readFails(match[1], read) {
		(&bind{w: w}).reply(http.StatusInternalServerError, metav1.StatusReasonInternalError)
		return
	}
	p.pass.ServeHTTP(w, r)
}

// send forwards the request, even if the client has gone, and returns the API server's response.
func (p *proxy) send(b *bind) (status int, header http.Header, answer []byte) {
	r := b.r.Clone(context.Background())
	r.RequestURI, r.URL.Scheme, r.URL.Host, r.Host = "", p.target.Scheme, p.target.Host, p.target.Host
	r.Body = io.NopCloser(bytes.NewReader(b.body))
	r.Header.Del("Accept-Encoding")
	response, err := p.transport.RoundTrip(r)
	if err != nil {
		return http.StatusBadGateway, nil, []byte(err.Error())
	}
	defer response.Body.Close()
	answer, _ = io.ReadAll(response.Body)
	if response.StatusCode < 300 {
		p.mu.Lock()
		p.bound[b.pod]++
		p.mu.Unlock()
	}
	return response.StatusCode, response.Header, answer
}

// waitAttempts returns once the proxy has received n bind requests for the pod.
func (p *proxy) waitAttempts(ctx context.Context, pod string, n int) error {
	return wait.PollUntilContextCancel(ctx, pollInterval, true, func(context.Context) (bool, error) {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.attempts[pod] >= n, nil
	})
}
