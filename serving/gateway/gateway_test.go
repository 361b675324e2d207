package gateway

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"golang.org/x/sys/unix"

	"github.com/gshare-dev/gshare/serving/gateway/http1"
	"github.com/gshare-dev/gshare/serving/rules/scaling"
)

const ms = time.Millisecond

// network connects servers by name through in-memory pipes.
type network struct {
	mu      sync.Mutex
	servers map[string]*listener
}

type listener struct {
	connections chan net.Conn
	closed      chan struct{}
	once        sync.Once
}

func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.connections:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}
func (l *listener) Close() error   { l.once.Do(func() { close(l.closed) }); return nil }
func (l *listener) Addr() net.Addr { return &net.TCPAddr{} }

func (n *network) dial(ctx context.Context, _, address string) (net.Conn, error) {
	n.mu.Lock()
	l := n.servers[address]
	n.mu.Unlock()
	refused := &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}
	if l == nil {
		return nil, refused
	}
	here, there := net.Pipe()
	select {
	case l.connections <- there:
		return here, nil
	case <-l.closed:
		return nil, refused
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// serve runs a server under a name until the test ends or stop is called.
func (n *network) serve(t *testing.T, name string, h http.Handler) (stop func()) {
	return n.run(t, name, &http.Server{Handler: h})
}

func (n *network) run(t *testing.T, name string, server *http.Server) (stop func()) {
	l := &listener{connections: make(chan net.Conn), closed: make(chan struct{})}
	n.mu.Lock()
	n.servers[name] = l
	n.mu.Unlock()
	if server.TLSConfig == nil {
		go server.Serve(l)
	} else {
		go server.ServeTLS(l, "", "")
	}
	stop = func() { server.Close() }
	t.Cleanup(stop)
	return stop
}

// world is a gateway with a function, on an in-memory network.
type world struct {
	*testing.T
	network  *network
	gateway  *Gateway
	server   *http.Server // that of the gateway
	client   *http.Client
	registry *prometheus.Registry
}

var resnet = FunctionName{"default", "resnet"}

// answering checks that a handler never returns without a status: net/http would then answer 200, which is a success to a client that has closed only its
// sending side.
type answering struct {
	*testing.T
	handler http.Handler
}

func (a answering) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	s := &statusWriter{ResponseWriter: rw}
	a.handler.ServeHTTP(s, r)
	if !s.begun {
		a.Errorf("%s %s: the handler has returned without a status", r.Method, r.URL)
	}
}

// statusWriter notes whether there is a status.
type statusWriter struct {
	http.ResponseWriter
	begun bool
}

func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
func (w *statusWriter) WriteHeader(status int) {
	w.begun = w.begun || status >= 200 || status == 101
	w.ResponseWriter.WriteHeader(status)
}
func (w *statusWriter) Write(b []byte) (int, error) { w.begun = true; return w.ResponseWriter.Write(b) }

// mustHaveStatus checks that each request that was counted has a status.
func mustHaveStatus(t *testing.T, registry *prometheus.Registry) {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			for _, l := range m.GetLabel() {
				if status, err := strconv.Atoi(l.GetValue()); l.GetName() == "code" && (err != nil || status < 101 || status > 999) {
					t.Errorf("%v requests are counted with the status %q", m.GetCounter().GetValue(), l.GetValue())
				}
			}
		}
	}
}

// panicking is a transport with a fault.
type panicking struct{}

func (panicking) RoundTrip(*http.Request) (*http.Response, error) { panic(http.ErrAbortHandler) }

// TestPanicHasStatus checks that a request during which the gateway panics is counted as an error. mustHaveStatus is the check for all other ways out.
func TestPanicHasStatus(t *testing.T) {
	registry := prometheus.NewRegistry()
	g := New(Config{Upstream: panicking{}, Metrics: registry})
	if err := errors.Join(g.SetFunction(Function{FunctionName: resnet}), g.SetReplicas(resnet, []Replica{{ID: "a", Address: "a:80"}})); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(g)
	r, _ := http.NewRequest(http.MethodPost, server.URL, strings.NewReader("x"))
	r.Host = "resnet"
	if response, err := http.DefaultClient.Do(r); err == nil {
		response.Body.Close()
		t.Errorf("status %d", response.StatusCode)
	}
	server.Close()
	mustHaveStatus(t, registry)
	if n, err := testutil.GatherAndCount(registry, "gshare_gateway_requests_total"); n != 1 || err != nil {
		t.Errorf("%d statuses: %v", n, err)
	}
}

// start runs a test in a bubble of virtual time.
func start(t *testing.T, f Function, test func(w *world)) {
	synctest.Test(t, func(t *testing.T) {
		n := &network{servers: map[string]*listener{}}
		large := newTransport()
		large.DialContext = n.dial
		upstream := &http1.Transport{Dial: n.dial, Others: large}
		w := &world{T: t, network: n, registry: prometheus.NewRegistry()}
		upstreamGRPC := newTransportGRPC()
		upstreamGRPC.DialContext = n.dial
		w.gateway = New(Config{Upstream: upstream, UpstreamGRPC: upstreamGRPC, Metrics: w.registry})
		f.FunctionName = resnet
		if err := w.gateway.SetFunction(f); err != nil {
			t.Fatal(err)
		}
		w.server = w.gateway.Server()
		w.server.Handler = answering{t, w.server.Handler}
		n.run(t, "gateway:80", w.server)
		down := &http.Transport{DialContext: n.dial, DisableCompression: true, MaxIdleConnsPerHost: 10_000}
		w.client = &http.Client{Transport: down}
		test(w)
		synctest.Wait()
		mustHaveStatus(t, w.registry)
		for _, f := range w.gateway.all() {
			if f.answers.bytes != 0 {
				t.Errorf("%s: %d bytes of answers are never released", f.name, f.answers.bytes)
			}
		}
		down.CloseIdleConnections()
		upstream.CloseIdleConnections()
		upstreamGRPC.CloseIdleConnections()
	})
}

// replicas serves the handler under each of the names, and makes these the replicas of the function.
func (w *world) replicas(h http.Handler, credits int, latency time.Duration, names ...string) {
	w.Helper()
	var list []Replica
	for _, name := range names {
		w.network.serve(w.T, name+":80", h)
		list = append(list, Replica{ID: name, Address: name + ":80", Credits: credits, Latency: latency})
	}
	if err := w.gateway.SetReplicas(resnet, list); err != nil {
		w.Fatal(err)
	}
}

type answer struct {
	status int
	reason string
	body   string
	header http.Header
	err    error
	took   time.Duration
}

// ask sends a request and returns the response. headers are pairs of name and value; the names Method, Path and Query change that or the URL instead.
func (w *world) ask(ctx context.Context, body string, headers ...string) answer {
	begin := time.Now()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://gateway:80/v1/predict?x=1", strings.NewReader(body))
	if err != nil {
		return answer{err: err}
	}
	r.Host = "resnet"
	for i := 0; i < len(headers); i += 2 {
		switch value := headers[i+1]; headers[i] {
		case "Host":
			r.Host = value
		case "Method":
			r.Method = value
		case "Path":
			r.URL.Path = value
		case "Query":
			r.URL.RawQuery = value
		default:
			r.Header.Set(headers[i], value)
		}
	}
	response, err := w.client.Do(r)
	if err != nil {
		return answer{err: err, took: time.Since(begin)}
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return answer{response.StatusCode, response.Header.Get("X-Gshare-Reason"), string(text), response.Header, err, time.Since(begin)}
}

// echo responds with the request's body after a delay.
func echo(after time.Duration) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		select {
		case <-time.After(after):
		case <-r.Context().Done():
			return
		}
		w.Header().Set("X-Path", r.URL.String())
		w.Write(body)
	})
}

// TestPass checks that a request and its response pass unchanged, and how a host name identifies a function.
func TestPass(t *testing.T) {
	start(t, Function{}, func(w *world) {
		w.replicas(echo(5*ms), 1, 0, "a")
		for _, host := range []string{"resnet", "RESNET", "resnet:8080", "resnet.default", "resnet.default.svc", "resnet.default.svc.cluster.local.", "resnet.default.svc.example:80"} {
			a := w.ask(w.Context(), "input", "Host", host)
			if a.status != 200 || a.body != "input" || a.header.Get("X-Path") != "/v1/predict?x=1" || a.took != 5*ms || a.header.Get("X-Gshare-Cold-Start") != "warm" {
				w.Errorf("host %q: %+v", host, a)
			}
		}
		for _, host := range []string{"bert", "resnet.other", "resnet.example.com", "default.resnet", "resnet.default.pod"} {
			if a := w.ask(w.Context(), "input", "Host", host); a.status != 404 || a.reason != reasonUnknown || !strings.Contains(a.body, `{"error":`) {
				w.Errorf("host %q: %+v", host, a)
			}
		}
		if l := w.gateway.Load(resnet); l.Arrived != 7 || l.Answered != 7 || l.InTime != 7 || l.P99 > 5*ms+5*ms/100 || l.Replicas != 1 || l.InFlight != 0 {
			w.Errorf("%+v", l)
		}
	})
}

// TestEarliestDeadlineFirst checks that waiting requests are served in the order of their deadlines, one for each credit.
func TestEarliestDeadlineFirst(t *testing.T) {
	start(t, Function{SLO: 10 * time.Second}, func(w *world) {
		var mu sync.Mutex
		var order []string
		busy := atomic.Int32{}
		w.replicas(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			if busy.Add(1) > 1 {
				w.Error("two requests at once for one credit")
			}
			body, _ := io.ReadAll(r.Body)
			mu.Lock()
			order = append(order, string(body))
			mu.Unlock()
			time.Sleep(100 * ms)
			busy.Add(-1)
		}), 1, 0, "a")
		var wait sync.WaitGroup
		for i, timeout := range []string{"5000", "4000", "3000", "2000"} {
			wait.Go(func() { w.ask(w.Context(), timeout, timeoutHeaders[i%2], timeout) })
			synctest.Wait()
		}
		wait.Wait()
		if got := strings.Join(order, " "); got != "5000 2000 3000 4000" {
			w.Errorf("served %s", got)
		}
	})
}

// TestOverload sends twice as many requests as the replicas can serve. Accepted requests are answered in time, and nearly as many as can be
// served are accepted. The control is a queue in the order of arrival, where nearly everything is late.
func TestOverload(t *testing.T) {
	start(t, Function{SLO: 200 * ms}, func(w *world) {
		w.replicas(echo(20*ms), 1, 20*ms, "a", "b") // 100 per second
		var wait sync.WaitGroup
		var inTime, late, refused atomic.Int32
		for range 2000 { // 200 per second
			wait.Go(func() {
				switch a := w.ask(w.Context(), "input"); {
				case a.status == 200 && a.took <= 200*ms:
					inTime.Add(1)
				case a.status == 200:
					late.Add(1)
				default:
					refused.Add(1)
					if a.reason != reasonLate || a.status == 429 && a.header.Get("Retry-After") == "" {
						w.Errorf("%+v", a)
					}
				}
			})
			time.Sleep(5 * ms)
		}
		wait.Wait()
		if inTime.Load() < 950 || late.Load() > 0 || refused.Load() < 900 {
			w.Errorf("%d in time, %d late, %d refused; want at least 95 %% of 1,000 that can be served", inTime.Load(), late.Load(), refused.Load())
		}
		if l := w.gateway.Load(resnet); l.InTime != uint64(inTime.Load()) || l.Refused != uint64(refused.Load()) || l.Waiting+l.InFlight > 0 {
			w.Errorf("%+v", l)
		}
	})
	start(t, Function{Timeout: time.Hour}, func(w *world) { // without an objective
		w.replicas(echo(20*ms), 1, 20*ms, "a", "b")
		var wait sync.WaitGroup
		var inTime atomic.Int32
		for range 2000 {
			wait.Go(func() {
				if a := w.ask(w.Context(), "input"); a.took <= 200*ms {
					inTime.Add(1)
				}
			})
			time.Sleep(5 * ms)
		}
		wait.Wait()
		if inTime.Load() > 400 {
			w.Errorf("the control: %d of 2,000 in time", inTime.Load())
		}
	})
}

// TestFromZero checks that requests are held until a replica comes, and the limits of how many are held and for how long.
func TestFromZero(t *testing.T) {
	start(t, Function{SLO: 50 * ms, Hold: Hold{Requests: 3, For: 10 * time.Second}}, func(w *world) {
		var wait sync.WaitGroup
		answers := make([]answer, 4)
		for i := range answers {
			wait.Go(func() { answers[i] = w.ask(w.Context(), "input") })
			synctest.Wait()
		}
		if got := <-w.gateway.Waiting(); got != resnet {
			w.Errorf("waiting: %v", got)
		}
		if l := w.gateway.Load(resnet); l.Waiting != 3 || l.Refused != 1 {
			w.Errorf("%+v", l)
		}
		time.Sleep(4 * time.Second)
		w.replicas(echo(30*ms), 1, 30*ms, "a")
		wait.Wait()
		for i, a := range answers[:3] {
			if a.status != 200 || a.header.Get("X-Gshare-Cold-Start") != "cold" || a.took != 4*time.Second+time.Duration(i+1)*30*ms {
				w.Errorf("request %d: %+v", i, a)
			}
		}
		if a := answers[3]; a.status != 503 || a.reason != reasonHoldFull || a.header.Get("Retry-After") == "" {
			w.Errorf("one too many: %+v", a)
		}
		if err := w.gateway.SetReplicas(resnet, nil); err != nil {
			w.Error(err)
		}
		if a := w.ask(w.Context(), "input"); a.status != 503 || a.reason != reasonHoldExpired || a.took != 10*time.Second {
			w.Errorf("no replica came: %+v", a)
		}
	})
}

// TestClientGone checks that when their clients disconnect, requests leave the queue and return their credits at once.
func TestClientGone(t *testing.T) {
	start(t, Function{}, func(w *world) {
		w.replicas(echo(time.Hour), 1, 0, "a")
		ctx, cancel := context.WithCancel(w.Context())
		var wait sync.WaitGroup
		for range 3 {
			wait.Go(func() { w.ask(ctx, "input") })
			synctest.Wait()
		}
		if l := w.gateway.Load(resnet); l.Waiting != 2 || l.InFlight != 1 {
			w.Errorf("%+v", l)
		}
		cancel()
		wait.Wait()
		synctest.Wait()
		if l := w.gateway.Load(resnet); l.Waiting != 0 || l.InFlight != 0 || l.Gone != 3 || l.Failed != 0 {
			w.Errorf("after they have gone: %+v", l)
		}
		wait.Go(func() { w.ask(w.Context(), "input", timeoutHeaders[0], "100") })
		synctest.Wait()
		if l := w.gateway.Load(resnet); l.InFlight != 1 {
			w.Errorf("the credit did not come back: %+v", l)
		}
		wait.Wait()
	})
}

// TestDeadlineOfClient checks that a client's deadline ends waiting and execution, and is passed to the replica, reduced by the time that has
// passed.
func TestDeadlineOfClient(t *testing.T) {
	start(t, Function{}, func(w *world) {
		var got atomic.Value
		slow := echo(300 * ms)
		w.replicas(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			got.Store(r.Header.Get(timeoutHeaders[0]))
			slow.ServeHTTP(rw, r)
		}), 1, 0, "a")
		var wait sync.WaitGroup
		wait.Go(func() { w.ask(w.Context(), "first") })
		synctest.Wait()
		wait.Go(func() {
			if a := w.ask(w.Context(), "second", timeoutHeaders[0], "400"); a.status != 504 || a.reason != reasonDeadline || a.took != 400*ms {
				w.Errorf("in execution: %+v", a)
			}
		})
		synctest.Wait()
		time.Sleep(310 * ms)
		if got.Load() != "100" {
			w.Errorf("the replica was told %v ms, want the 100 that are left", got.Load())
		}
		wait.Wait()
		for _, bad := range []string{"-1", "0", "x", "1e3", "99999999999"} {
			if a := w.ask(w.Context(), "input", timeoutHeaders[1], bad); a.status != 400 || !strings.Contains(a.body, timeoutHeaders[1]) {
				w.Errorf("%s ms: %+v", bad, a)
			}
		}
	})
}

// TestDeadlineInAnswer checks that a client's deadline cuts off a response, and that the replica does not count as failed.
func TestDeadlineInAnswer(t *testing.T) {
	start(t, Function{}, func(w *world) {
		w.replicas(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			_, _ = rw.Write([]byte("part"))
			_ = http.NewResponseController(rw).Flush()
			<-r.Context().Done()
		}), 1, 0, "a")
		if a := w.ask(w.Context(), "input", timeoutHeaders[0], "50"); a.err == nil || a.body != "part" || a.took != 50*ms {
			w.Errorf("%+v", a)
		}
		w.count(map[string]float64{"504": 1})
		if l := w.gateway.Load(resnet); w.avoided() > 0 || l.Failed != 1 || l.InFlight != 0 {
			w.Errorf("%d replicas are avoided; %+v", w.avoided(), l)
		}
	})
}

// TestReplicaDies checks that if a replica dies before it answers, the request is sent to another one, and that a response that breaks off
// does not look complete.
func TestReplicaDies(t *testing.T) {
	start(t, Function{Idempotent: true}, func(w *world) {
		dies := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
		w.network.serve(w.T, "a:80", dies)
		w.network.serve(w.T, "b:80", echo(10*ms))
		err := w.gateway.SetReplicas(resnet, []Replica{{ID: "a", Address: "a:80", Latency: ms}, {ID: "b", Address: "b:80", Latency: 10 * ms}})
		if err != nil {
			w.Fatal(err)
		}
		for range 5 {
			if a := w.ask(w.Context(), "input"); a.status != 200 || a.body != "input" {
				w.Errorf("%+v", a)
			}
		}
		w.replicas(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
			rw.Header().Set("Content-Length", "100")
			fmt.Fprint(rw, "half")
			rw.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		}), 1, 0, "c")
		if a := w.ask(w.Context(), "input"); a.err == nil {
			w.Errorf("half an answer looks whole: %+v", a)
		}
		w.replicas(dies, 1, 0, "d")
		if a := w.ask(w.Context(), "input"); a.status != 502 || a.reason != reasonReplica {
			w.Errorf("both attempts failed: %+v", a)
		}
		w.replicas(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
			c, _, err := rw.(http.Hijacker).Hijack()
			if err != nil {
				w.Error(err)
				return
			}
			_, _ = io.WriteString(c, "HTTP/1.1 099 None\r\nContent-Length: 0\r\n\r\n")
			c.Close()
		}), 1, 0, "e")
		if a := w.ask(w.Context(), "input"); a.status != 502 || a.reason != reasonReplica {
			w.Errorf("a status that is none: %+v", a)
		}
		if l := w.gateway.Load(resnet); l.Failed != 3 || l.InFlight != 0 || l.Waiting != 0 {
			w.Errorf("%+v", l)
		}
	})
}

// vanished is a connection to a server whose node has no power: the kernel takes what is sent, and gives up after a time.
type vanished struct {
	net.Conn
	after time.Duration
}

func (vanished) Write(p []byte) (int, error) { return len(p), nil }

func (c vanished) Read([]byte) (int, error) {
	time.Sleep(c.after)
	return 0, &net.OpError{Op: "read", Net: "tcp", Err: os.NewSyscallError("read", syscall.ETIMEDOUT)}
}

// TestReplicaVanishes checks that a request is sent to another replica when the kernel gives up the connection to a node that has lost its power, and
// likewise if a connection cannot be opened.
func TestReplicaVanishes(t *testing.T) {
	const after = 15 * time.Second
	for name, length := range map[string]int{"small": 5, "large": 100 << 10} {
		for _, connected := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s request, connected %t", name, connected), func(t *testing.T) {
				start(t, Function{Idempotent: true}, func(w *world) {
					dial := func(ctx context.Context, network, address string) (net.Conn, error) {
						if address != "a:80" {
							return w.network.dial(ctx, network, address)
						}
						if connected {
							here, _ := net.Pipe()
							return vanished{here, after}, nil
						}
						time.Sleep(after)
						return nil, &net.OpError{Op: "dial", Net: network, Err: os.ErrDeadlineExceeded}
					}
					upstream := w.gateway.upstream.(*http1.Transport)
					upstream.Dial, upstream.Others.(*http.Transport).DialContext = dial, dial
					w.network.serve(w.T, "b:80", echo(0))
					err := w.gateway.SetReplicas(resnet, []Replica{{ID: "a", Address: "a:80", Latency: ms}, {ID: "b", Address: "b:80", Latency: 10 * ms}})
					if err != nil {
						w.Fatal(err)
					}
					body := strings.Repeat("x", length)
					if a := w.ask(w.Context(), body); a.status != 200 || a.body != body || a.took != after || w.avoided() != 1 {
						w.Errorf("status %d with %d bytes after %v, error %v; %d replicas are avoided", a.status, len(a.body), a.took, a.err, w.avoided())
					}
				})
			})
		}
	}
}

// TestConnectionsToReplicas checks that no connection waits for a server that has gone as long as Linux does by default.
func TestConnectionsToReplicas(t *testing.T) {
	server := httptest.NewServer(echo(0))
	defer server.Close()
	for name, transport := range map[string]*http.Transport{
		"HTTP": newTransport(), "gRPC": newTransportGRPC(), "gateways": newPeerTransport(nil, false), "gRPC of gateways": newPeerTransport(nil, true),
	} {
		t.Run(name, func(t *testing.T) {
			dial := transport.DialContext
			if dial == nil {
				dial = new(net.Dialer).DialContext
			}
			c, err := dial(t.Context(), "tcp", server.Listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			raw, err := c.(syscall.Conn).SyscallConn()
			if err != nil {
				t.Fatal(err)
			}
			if err := raw.Control(func(fd uintptr) {
				got, err := unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT)
				if want := int(maxUnacknowledged.Milliseconds()); err != nil || got != want {
					t.Errorf("the kernel waits %d ms, error %v; want %d ms", got, err, want)
				}
			}); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestRetriesAreBounded checks that retries do not double the requests of a function all of whose replicas fail.
func TestRetriesAreBounded(t *testing.T) {
	start(t, Function{Idempotent: true}, func(w *world) {
		var sent atomic.Int32
		w.replicas(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { sent.Add(1); panic(http.ErrAbortHandler) }), 1, 0, "a", "b")
		const requests = 2000
		for range requests {
			if a := w.ask(w.Context(), "input"); a.status != 502 {
				w.Fatalf("%+v", a)
			}
		}
		if n := sent.Load(); n > requests+requests/10+maxRetries {
			w.Errorf("%d attempts for %d requests", n, requests)
		}
	})
}

// TestStream checks that whatever a replica streams reaches the client at once, and that the credit is taken until the stream ends.
func TestStream(t *testing.T) {
	start(t, Function{}, func(w *world) {
		w.replicas(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			rw.Header().Set("Content-Type", "text/event-stream")
			for i := range 5 {
				fmt.Fprintf(rw, "data: %d\n\n", i)
				rw.(http.Flusher).Flush()
				select {
				case <-time.After(100 * ms):
				case <-r.Context().Done():
					return
				}
			}
		}), 1, 0, "a")
		ctx, cancel := context.WithCancel(w.Context())
		defer cancel()
		r, _ := http.NewRequestWithContext(ctx, http.MethodPost, "http://gateway:80/", bytes.NewReader([]byte("x")))
		r.Host = "resnet"
		begin := time.Now()
		response, err := w.client.Do(r)
		if err != nil {
			w.Fatal(err)
		}
		defer response.Body.Close()
		buffer := make([]byte, 100)
		for i := range 3 {
			n, err := response.Body.Read(buffer)
			if want := fmt.Sprintf("data: %d\n\n", i); err != nil || string(buffer[:n]) != want || time.Since(begin) != time.Duration(i)*100*ms {
				w.Errorf("%v: %q after %v, want %q", err, buffer[:n], time.Since(begin), want)
			}
		}
		if l := w.gateway.Load(resnet); l.InFlight != 1 {
			w.Errorf("during the stream: %+v", l)
		}
		cancel()
		synctest.Wait()
		if l := w.gateway.Load(resnet); l.InFlight != 0 || l.Gone != 1 {
			w.Errorf("the client has gone: %+v", l)
		}
	})
}

// TestDrain checks that a draining replica gets no new requests and loses none.
func TestDrain(t *testing.T) {
	start(t, Function{}, func(w *world) {
		w.replicas(echo(100*ms), 2, 0, "a", "b")
		var wait sync.WaitGroup
		for range 40 {
			wait.Go(func() {
				if a := w.ask(w.Context(), "input"); a.status != 200 {
					w.Errorf("%+v", a)
				}
			})
			time.Sleep(10 * ms)
		}
		begin := time.Now()
		if err := w.gateway.Drain(w.Context(), resnet, "a"); err != nil || time.Since(begin) > 100*ms {
			w.Errorf("%v after %v", err, time.Since(begin))
		}
		if l := w.gateway.Load(resnet); l.Replicas != 1 || l.InFlight > 2 {
			w.Errorf("%+v", l)
		}
		wait.Wait()
		ctx, cancel := context.WithTimeout(w.Context(), 50*ms)
		defer cancel()
		wait.Go(func() { w.ask(w.Context(), "input") })
		synctest.Wait()
		if err := w.gateway.Drain(ctx, resnet, "b"); !errors.Is(err, context.DeadlineExceeded) {
			w.Errorf("a drain that takes too long: %v", err)
		}
		wait.Wait()
		if err := w.gateway.Drain(w.Context(), resnet, "absent"); err != nil {
			w.Error(err)
		}
	})
}

// TestStartDrain removes the replica from the list while it has a request.
func TestStartDrain(t *testing.T) {
	start(t, Function{}, func(w *world) {
		w.replicas(echo(100*ms), 1, 0, "a")
		var wait sync.WaitGroup
		wait.Go(func() {
			if a := w.ask(w.Context(), "input"); a.status != 200 {
				w.Errorf("%+v", a)
			}
		})
		synctest.Wait()
		begin := time.Now()
		done := w.gateway.StartDrain(resnet, "a")
		w.replicas(echo(0), 1, 0, "b")
		if a := w.ask(w.Context(), "input"); a.status != 200 || a.took > 50*ms {
			w.Errorf("while a is drained: %+v, want an answer of b", a)
		}
		if <-done; time.Since(begin) != 100*ms {
			w.Errorf("drained after %v, want 100 ms", time.Since(begin))
		}
		wait.Wait()
		<-w.gateway.StartDrain(resnet, "absent")
		<-w.gateway.StartDrain(FunctionName{"default", "absent"}, "a")
	})
}

// TestReplicaComesBack takes a replica away while it has a request and gives it back: it gets no more requests at once than it has credits, what was
// learned about it is kept, and its drains end when it has no request. Once it has none, it comes back as a new replica.
func TestReplicaComesBack(t *testing.T) {
	drain := func(w *world) <-chan struct{} { return w.gateway.StartDrain(resnet, "a") }
	list := func(w *world, r ...Replica) {
		if err := w.gateway.SetReplicas(resnet, r); err != nil {
			w.Fatal(err)
		}
	}
	a := Replica{ID: "a", Address: "a:80"}
	parked, moved := a, a
	parked.Residency = scaling.Warm
	moved.Address = "b:80"
	for name, c := range map[string]struct {
		leave func(w *world) (drained <-chan struct{}) // nil: without a drain
		away  time.Duration                            // the request takes 100 ms
		back  Replica
		most  int  // requests at replicas at once
		known bool // its latency is still known
	}{
		"unlisted":             {func(w *world) <-chan struct{} { list(w); return nil }, 50 * ms, a, 1, true},
		"parked":               {func(w *world) <-chan struct{} { list(w, parked); return nil }, 50 * ms, a, 1, true},
		"drained and unlisted": {func(w *world) <-chan struct{} { d := drain(w); list(w); return d }, 50 * ms, a, 1, true},
		"drained, then parked": {func(w *world) <-chan struct{} { d := drain(w); list(w, a); list(w, parked); list(w); return d }, 50 * ms, a, 1, true},
		"unlisted twice":       {func(w *world) <-chan struct{} { list(w); list(w); return nil }, 50 * ms, a, 1, true},
		"twice away":           {func(w *world) <-chan struct{} { d := drain(w); list(w); list(w, a); list(w); return d }, 50 * ms, a, 1, true},
		"idle by then":         {func(w *world) <-chan struct{} { d := drain(w); list(w); return d }, 150 * ms, a, 1, false},
		"another address":      {func(w *world) <-chan struct{} { list(w); return nil }, 50 * ms, moved, 2, false},
	} {
		t.Run(name, func(t *testing.T) {
			start(t, Function{}, func(w *world) {
				b := newBusy()
				serve := b.echo(100 * ms)("replicas")
				w.network.serve(w.T, "b:80", serve)
				w.replicas(serve, 1, 0, "a")
				w.ask(w.Context(), "input") // for its latency
				var wait sync.WaitGroup
				ask := func() {
					wait.Go(func() {
						if a := w.ask(w.Context(), "input"); a.status != 200 {
							w.Errorf("%+v", a)
						}
					})
					synctest.Wait()
				}
				ask()
				begin := time.Now()
				if drained := c.leave(w); drained != nil {
					wait.Go(func() {
						if <-drained; time.Since(begin) != 100*ms && time.Since(begin) != 200*ms {
							w.Errorf("drained after %v, want the end of a request", time.Since(begin))
						}
					})
				}
				time.Sleep(c.away)
				list(w, c.back)
				if known := w.gateway.function(resnet).all[0].learned.Mean(1) > 0; known != c.known {
					w.Errorf("its latency is known: %v, want %v", known, c.known)
				}
				ask()
				time.Sleep(75 * ms) // it has the second request now
				last := drain(w)
				select {
				case <-last:
					w.Error("drained with a request")
				default:
				}
				wait.Wait()
				<-last
				if b.most["replicas"] != c.most {
					w.Errorf("up to %d requests at once, want %d", b.most["replicas"], c.most)
				}
			})
		})
	}
}

// TestBodies checks the limits of bodies: too large, too short, and too slow.
func TestBodies(t *testing.T) {
	start(t, Function{MaxBody: 1024, MaxBytes: 2048}, func(w *world) {
		w.replicas(echo(time.Second), 1, 0, "a")
		if a := w.ask(w.Context(), strings.Repeat("x", 1025)); a.status != 413 || a.reason != reasonTooLarge {
			w.Errorf("too large: %+v", a)
		}
		head := "POST / HTTP/1.1\r\nHost: resnet\r\n"
		if a := w.raw(head+"Transfer-Encoding: chunked\r\n\r\n401\r\n"+strings.Repeat("x", 1025)+"\r\n0\r\n\r\n", 12); a.body != "HTTP/1.1 413" {
			w.Errorf("too large in chunks: %+v", a)
		}
		if a := w.raw(head+"Content-Length: 100\r\n\r\nshort", 12); a.body != "HTTP/1.1 408" || a.took != bodyTimeout {
			w.Errorf("too slow: %+v", a)
		}
		if a := w.raw(head+"Transfer-Encoding: chunked\r\n\r\nzz\r\n", 12); a.body != "HTTP/1.1 400" {
			w.Errorf("not chunked: %+v", a)
		}
		var wait sync.WaitGroup
		var full atomic.Int32
		for range 4 {
			wait.Go(func() {
				if a := w.ask(w.Context(), strings.Repeat("x", 1000)); a.reason == reasonQueueFull && a.status == 429 {
					full.Add(1)
				}
			})
		}
		wait.Wait()
		if full.Load() != 2 {
			w.Errorf("%d of 4 bodies of 1,000 bytes were refused, want 2 beyond 2 KiB", full.Load())
		}
		if f := w.gateway.function(resnet); f.bodies.bytes != 0 {
			w.Errorf("%d bytes are never released", f.bodies.bytes)
		}
	})
}

// TestSlowReplicaIsNoticed checks that a replica that is slower than its profile gets no more requests than it can answer in time.
func TestSlowReplicaIsNoticed(t *testing.T) {
	start(t, Function{SLO: 100 * ms}, func(w *world) {
		w.replicas(echo(40*ms), 1, 20*ms, "a") // 50 per second by the profile, but really 25
		var wait sync.WaitGroup
		var inTime, late atomic.Int32
		for range 1000 {
			wait.Go(func() {
				if a := w.ask(w.Context(), "input"); a.status == 200 && a.took <= 100*ms {
					inTime.Add(1)
				} else if a.status == 200 {
					late.Add(1)
				}
			})
			time.Sleep(20 * ms)
		}
		wait.Wait()
		if inTime.Load() < 475 || late.Load() > 10 {
			w.Errorf("%d in time, %d late of 500 that can be served", inTime.Load(), late.Load())
		}
	})
}

// TestOneSlowAnswer checks that a burst is served even if each replica has just answered one request late, since that says little about the
// next ones.
func TestOneSlowAnswer(t *testing.T) {
	for name, profiled := range map[string]time.Duration{"profiled": 2 * ms, "not profiled": 0} {
		t.Run(name, func(t *testing.T) {
			start(t, Function{SLO: 2 * time.Second}, func(w *world) {
				var took atomic.Int64
				w.replicas(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { time.Sleep(time.Duration(took.Load())) }), 1, profiled, "a", "b")
				burst := func(n int, each time.Duration) {
					took.Store(int64(each))
					var wait sync.WaitGroup
					for range n {
						wait.Go(func() {
							if a := w.ask(w.Context(), "input"); a.status != 200 {
								w.Errorf("%d requests that take %v: %+v", n, each, a)
							}
						})
					}
					wait.Wait()
				}
				for range 100 {
					burst(2, 2*ms)
				}
				burst(2, 800*ms)
				burst(60, 2*ms)
			})
		})
	}
}

// TestOccupied checks that with the protocol OpenAI, a replica is expected to be free once its stream has ended, not when the stream begins.
func TestOccupied(t *testing.T) {
	start(t, Function{Protocol: OpenAI, SLO: 500 * ms}, func(w *world) {
		w.replicas(http.HandlerFunc(func(a http.ResponseWriter, _ *http.Request) {
			time.Sleep(10 * ms)
			_, _ = io.WriteString(a, tokenEvent)
			_ = http.NewResponseController(a).Flush()
			time.Sleep(990 * ms)
		}), 1, 0, "a")
		for range 20 {
			if a := w.ask(w.Context(), "input"); a.status != 200 || a.took != 1000*ms {
				w.Errorf("%+v", a)
			}
		}
		var first sync.WaitGroup
		first.Go(func() { w.ask(w.Context(), "input") })
		time.Sleep(50 * ms)
		if a := w.ask(w.Context(), "input"); a.status != 429 || a.reason != reasonLate || a.took != 0 {
			w.Errorf("one that has to wait for 950 ms is not refused at once: %+v", a)
		}
		first.Wait()
	})
}

// TestLoneRequestIsServed checks that a request to an idle replica is served even if it is expected to be late. Otherwise a wrong measurement
// could close a function for good.
func TestLoneRequestIsServed(t *testing.T) {
	start(t, Function{SLO: 50 * ms}, func(w *world) {
		slow := atomic.Bool{}
		slow.Store(true)
		w.replicas(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			if slow.Load() {
				time.Sleep(10 * time.Second)
			}
		}), 1, 0, "a")
		for range 3 {
			if a := w.ask(w.Context(), "input"); a.status != 200 {
				w.Errorf("%+v", a)
			}
		}
		slow.Store(false)
		for range 300 {
			if a := w.ask(w.Context(), "input"); a.status != 200 || a.took > ms {
				w.Errorf("%+v", a)
			}
		}
	})
}

// TestLoneRequestIsDueAsBefore checks that a request given to an idle replica, although it is expected to be late, still ends at the client's
// deadline, and does not count as in time.
func TestLoneRequestIsDueAsBefore(t *testing.T) {
	start(t, Function{SLO: 50 * ms}, func(w *world) {
		var got atomic.Value
		slow := echo(100 * ms)
		w.replicas(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			got.Store(r.Header.Get(timeoutHeaders[0]))
			slow.ServeHTTP(rw, r)
		}), 1, 100*ms, "a")
		if a := w.ask(w.Context(), "input", timeoutHeaders[0], "50"); a.status != 504 || a.reason != reasonDeadline || a.took != 50*ms || got.Load() != "50" {
			w.Errorf("the replica was told %v ms; %+v", got.Load(), a)
		}
		if a := w.ask(w.Context(), "input"); a.status != 200 {
			w.Errorf("%+v", a)
		}
		if l := w.gateway.Load(resnet); l.Failed != 1 || l.Answered != 1 || l.InTime != 0 {
			w.Errorf("%+v", l)
		}
	})
}

// TestHopelessRequests checks that a client that gives up each of its requests cannot occupy an idle replica with them.
func TestHopelessRequests(t *testing.T) {
	start(t, Function{SLO: 200 * ms}, func(w *world) {
		var served atomic.Int32
		w.replicas(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			served.Add(1)
			time.Sleep(100 * ms) // whether or not the client is still there
		}), 1, 100*ms, "a")
		for i := range 100 {
			a := w.ask(w.Context(), "input", timeoutHeaders[0], "5")
			if a.status != 504 && a.status != 429 {
				w.Errorf("%+v", a)
			}
			if i == 50 {
				if a := w.ask(w.Context(), "input"); a.status != 200 {
					w.Errorf("an honest request: %+v", a)
				}
			}
			time.Sleep(ms)
		}
		if n := served.Load(); n < 3 || n > 5 {
			w.Errorf("the replica got %d requests", n)
		}
		if a := w.ask(w.Context(), "input", timeoutHeaders[0], "150"); a.status != 200 {
			w.Errorf("a request that can be in time: %+v", a)
		}
	})
}

// TestLoneRequestIsServedInRealTime checks the same in real time, where the clock advances between two decisions about a request, which
// synctest's clock does not.
func TestLoneRequestIsServedInRealTime(t *testing.T) {
	g := New(Config{})
	if err := g.SetFunction(Function{FunctionName: resnet, SLO: time.Microsecond}); err != nil {
		t.Fatal(err)
	}
	replica := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { time.Sleep(300 * ms) }))
	defer replica.Close()
	if err := g.SetReplicas(resnet, []Replica{{ID: "a", Address: replica.Listener.Addr().String(), Credits: 1}}); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		r, answer := httptest.NewRequest(http.MethodPost, "http://resnet/", nil), httptest.NewRecorder()
		if g.ServeHTTP(answer, r); answer.Code != http.StatusOK {
			t.Errorf("request %d: status %d", i, answer.Code)
		}
	}
}

// TestHotFirst checks that Hot replicas get requests before Shared ones, whatever their latencies.
func TestHotFirst(t *testing.T) {
	start(t, Function{}, func(w *world) {
		var hot, shared atomic.Int32
		count := func(n *atomic.Int32) http.Handler {
			return http.HandlerFunc(func(http.ResponseWriter, *http.Request) { n.Add(1); time.Sleep(10 * ms) })
		}
		w.network.serve(w.T, "hot:80", count(&hot))
		w.network.serve(w.T, "shared:80", count(&shared))
		err := w.gateway.SetReplicas(resnet, []Replica{
			{ID: "shared", Address: "shared:80", Residency: scaling.Shared, Latency: ms}, {ID: "hot", Address: "hot:80", Latency: 10 * ms},
		})
		if err != nil {
			w.Fatal(err)
		}
		for range 10 {
			w.ask(w.Context(), "input")
		}
		if hot.Load() != 10 || shared.Load() != 0 {
			w.Errorf("hot %d, shared %d", hot.Load(), shared.Load())
		}
		var wait sync.WaitGroup
		for range 2 {
			wait.Go(func() { w.ask(w.Context(), "input") })
		}
		wait.Wait()
		if hot.Load() != 11 || shared.Load() != 1 {
			w.Errorf("two at once: hot %d, shared %d", hot.Load(), shared.Load())
		}
	})
}

// TestRemoveFunction checks that the requests of a removed function end, and that it has no metrics then, whatever becomes of these requests.
func TestRemoveFunction(t *testing.T) {
	fails := func(w http.ResponseWriter, _ *http.Request) {
		time.Sleep(10 * ms)
		panic(http.ErrAbortHandler)
	}
	for name, c := range map[string]struct {
		of      Function
		replica http.Handler // nil: none
		want    []int        // status of each request
	}{
		"one waits":            {Function{}, nil, []int{404}},
		"a replica has one":    {Function{}, &model{took: constant(10 * ms)}, []int{200}},
		"another one waits":    {Function{}, &model{took: constant(10 * ms)}, []int{200, 404}},
		"the replica fails":    {Function{}, http.HandlerFunc(fails), []int{502}},
		"batches":              {batched, &model{took: constant(10 * ms)}, []int{200, 404}},
		"a batch of one fails": {batched, http.HandlerFunc(fails), []int{502}},
	} {
		t.Run(name, func(t *testing.T) {
			start(t, c.of, func(w *world) {
				if c.replica != nil {
					w.replicas(c.replica, 1, 0, "a")
				}
				var wait sync.WaitGroup
				for _, want := range c.want {
					wait.Go(func() {
						if a := w.infer(w.Context(), input("", 1)); a.status != want {
							w.Errorf("%+v, want %d", a, want)
						}
					})
					synctest.Wait()
				}
				w.gateway.RemoveFunction(resnet)
				wait.Wait()
				synctest.Wait()
				if w.gateway.Functions() != nil || w.gateway.Load(resnet) != (Load{}) {
					w.Error("the function is still there")
				}
				families, err := w.registry.Gather()
				if err != nil {
					w.Fatal(err)
				}
				for _, family := range families {
					w.Errorf("%s is still there: %v", family.GetName(), family.Metric)
				}
			})
		})
	}
}

func TestConfigurationIsChecked(t *testing.T) {
	g := New(Config{})
	for field, f := range map[string]Function{
		"name":    {},
		"slo":     {FunctionName: resnet, SLO: -1},
		"maxBody": {FunctionName: resnet, MaxBody: 2, MaxBytes: 1},
		"hold":    {FunctionName: resnet, Hold: Hold{Requests: -1}},
	} {
		if err := g.SetFunction(f); err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: %v", field, err)
		}
	}
	for _, list := range [][]Replica{{{Address: "a:1"}}, {{ID: "a"}}, {{ID: "a", Address: "a:1"}, {ID: "a", Address: "b:1"}}, {{ID: "a", Address: "a:1", Credits: -1}}} {
		if err := g.SetReplicas(resnet, list); err == nil {
			t.Errorf("%+v: taken", list)
		}
	}
}

// TestReplicasChangeInFlight repeatedly changes the residency of a replica that has requests. It is meant for the race detector.
func TestReplicasChangeInFlight(t *testing.T) {
	start(t, Function{}, func(w *world) {
		w.replicas(echo(5*ms), 4, 0, "a")
		var wait sync.WaitGroup
		for range 4 {
			wait.Go(func() {
				for range 20 {
					if a := w.ask(w.Context(), "input"); a.status != 200 {
						w.Errorf("%+v", a)
					}
				}
			})
		}
		for i := range 100 {
			if err := w.gateway.SetReplicas(resnet, []Replica{{ID: "a", Address: "a:80", Credits: 4, Residency: scaling.Residency(i % 2)}}); err != nil {
				w.Fatal(err)
			}
			time.Sleep(ms)
		}
		wait.Wait()
	})
}
