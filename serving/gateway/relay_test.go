package gateway

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/gshare-dev/gshare/serving/gateway/http1"
	"github.com/gshare-dev/gshare/serving/gateway/peers"
	"github.com/gshare-dev/gshare/serving/identity"
	pb "github.com/gshare-dev/gshare/serving/oip/inference"
)

// member is one of several gateways.
type member struct {
	*Gateway
	name                string
	server, peerServer  *http.Server
	registry            *prometheus.Registry
	frozen              chan struct{} // closed: neither takes nor answers anything any more
	mute                chan struct{} // closed: answers no pings any more
	upstream            *http1.Transport
	toReplicas, toPeers []*http.Transport
}

// cluster has several gateways with the same function, on a network.
type cluster struct {
	*testing.T
	network *network
	client  *http.Client
	members []*member // the owner first
	kill    map[string]*member

	authorities identity.Authorities // of the certificate of the gateways
}

// frozenConn is a connection to a gateway, which may freeze: it takes what comes, as its kernel does, and answers nothing.
type frozenConn struct {
	net.Conn
	frozen chan struct{}
}

func (c frozenConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	select {
	case <-c.frozen: // what comes later is not seen, either
		if err == nil {
			return c.Read(p)
		}
	default:
	}
	return n, err
}

// startCluster runs a test in a bubble of virtual time with gateways that ping each other if pings is set, and else stay as they were at first.
func startCluster(t *testing.T, f Function, count int, pings bool, test func(c *cluster)) {
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{T: t, network: &network{servers: map[string]*listener{}}, kill: map[string]*member{}}
		down := &http.Transport{DialContext: c.dial, DisableCompression: true, MaxIdleConnsPerHost: 10_000}
		c.authorities = newAuthorities(t)
		secure := newFiles(t, c.authorities, "gateway")
		down.TLSClientConfig = secure.ToPeers()
		c.client = &http.Client{Transport: down}
		f.FunctionName = resnet
		addresses := map[string]string{}
		var known []*peers.Peers
		ctx, end := context.WithCancel(t.Context())
		for i := range count {
			m := &member{name: fmt.Sprintf("g%d", i), registry: prometheus.NewRegistry(), frozen: make(chan struct{}), mute: make(chan struct{})}
			transport := func(t *http.Transport, list *[]*http.Transport) *http.Transport {
				t.DialContext = c.dial
				*list = append(*list, t)
				return t
			}
			pings := transport(peers.NewTransport(secure.ToPeers()), &m.toPeers)
			pings.DialContext = c.dialForPings
			p := peers.New(m.name, pings, slog.New(slog.DiscardHandler))
			m.upstream = &http1.Transport{Dial: c.dial, Others: transport(newTransport(), &m.toReplicas)}
			m.Gateway = New(Config{
				Upstream: m.upstream, UpstreamGRPC: transport(newTransportGRPC(), &m.toReplicas), Metrics: m.registry,
				Peers: p, PeerTLS: secure.ToPeers(),
				ToPeers:     transport(newPeerTransport(secure.ToPeers(), false), &m.toPeers),
				ToPeersGRPC: transport(newPeerTransport(secure.ToPeers(), true), &m.toPeers),
			})
			if err := m.SetFunction(f); err != nil {
				t.Fatal(err)
			}
			m.server, m.peerServer = m.Server(), m.PeerServer(secure.FromPeers())
			m.server.Handler = answering{t, m.server.Handler}
			c.network.run(t, m.name+":80", m.server)
			c.network.run(t, m.name+":82", m.peerServer)
			c.kill[m.name+":80"], c.kill[m.name+":82"] = m, m
			addresses[m.name] = m.name + ":82"
			known = append(known, p)
			c.members = append(c.members, m)
		}
		for i, p := range known {
			p.Set(addresses)
			running := ctx
			if !pings {
				var stop context.CancelFunc
				running, stop = context.WithTimeout(ctx, peers.Period/2)
				defer stop()
			}
			go c.members[i].RunPeers(running)
		}
		time.Sleep(peers.Period)
		synctest.Wait()
		ranked := known[0].View().Rank(resnet.String())
		if len(ranked) != count {
			t.Fatalf("gateways %v", ranked)
		}
		byName := map[string]*member{}
		for _, m := range c.members {
			byName[m.name] = m
		}
		for i, name := range ranked {
			c.members[i] = byName[name]
		}
		test(c)
		for _, m := range c.members {
			mustHaveStatus(t, m.registry)
		}
		end()
		down.CloseIdleConnections()
		for _, m := range c.members {
			m.upstream.CloseIdleConnections()
			for _, t := range append(m.toPeers, m.toReplicas...) {
				t.CloseIdleConnections()
			}
		}
		// A server waits for a second after an answer to a part of a request. Where both ends of a connection close it at once, each waits for the
		// other to read its last message, which TLS gives five seconds.
		time.Sleep(6 * time.Second)
	})
}

func (c *cluster) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := c.network.dial(ctx, network, address)
	if err != nil {
		return nil, &net.OpError{Op: "dial", Net: network, Err: err}
	}
	if m := c.kill[address]; m != nil {
		conn = frozenConn{conn, m.frozen}
	}
	return conn, nil
}

func (c *cluster) dialForPings(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := c.dial(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return frozenConn{conn, c.kill[address].mute}, nil
}

// die ends a gateway as SIGKILL does: its connections break.
func (m *member) die() {
	m.server.Close()
	m.peerServer.Close()
}

// replicas serves the handler under each of the names, and gives these replicas to all gateways.
func (c *cluster) replicas(h func(name string) http.Handler, names ...string) {
	c.Helper()
	var list []Replica
	for _, name := range names {
		c.network.serve(c.T, name+":80", h(name))
		list = append(list, Replica{ID: name, Address: name + ":80"})
	}
	for _, m := range c.members {
		if err := m.SetReplicas(resnet, list); err != nil {
			c.Fatal(err)
		}
	}
}

// ask sends a request to a gateway.
func (c *cluster) ask(ctx context.Context, to *member, body io.Reader, headers ...string) answer {
	begin := time.Now()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+to.name+":80/v1/predict?x=1", body)
	if err != nil {
		return answer{err: err}
	}
	r.Host = "resnet"
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	response, err := c.client.Do(r)
	if err != nil {
		return answer{err: err, took: time.Since(begin)}
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return answer{response.StatusCode, response.Header.Get("X-Gshare-Reason"), string(text), response.Header, err, time.Since(begin)}
}

// busy counts how many requests each replica has at once at most.
type busy struct {
	mu        sync.Mutex
	now, most map[string]int
}

func newBusy() *busy { return &busy{now: map[string]int{}, most: map[string]int{}} }

func (b *busy) echo(after time.Duration) func(string) http.Handler {
	return func(name string) http.Handler {
		inner := echo(after)
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			b.mu.Lock()
			b.now[name]++
			b.most[name] = max(b.most[name], b.now[name])
			b.mu.Unlock()
			defer func() {
				b.mu.Lock()
				defer b.mu.Unlock()
				b.now[name]--
			}()
			inner.ServeHTTP(w, r)
		})
	}
}

// TestOwner sends requests to all gateways: a replica gets one at a time, and the owner counts all of them. Without peers, which is the control, it
// gets one from each gateway.
func TestOwner(t *testing.T) {
	for name, alone := range map[string]bool{"peers": false, "control": true} {
		t.Run(name, func(t *testing.T) {
			startCluster(t, Function{}, 3, true, func(c *cluster) {
				b := newBusy()
				c.replicas(b.echo(10*ms), "a")
				if alone {
					for _, m := range c.members {
						m.peers = nil
					}
				}
				var wait sync.WaitGroup
				for i := range 30 {
					wait.Go(func() {
						if a := c.ask(c.Context(), c.members[i%3], strings.NewReader("input")); a.status != 200 || a.body != "input" || a.header.Get("X-Path") != "/v1/predict?x=1" {
							c.Errorf("%+v", a)
						}
					})
				}
				wait.Wait()
				if alone {
					if b.most["a"] != 3 {
						c.Errorf("the replica had up to %d requests at once, want one of each gateway", b.most["a"])
					}
					return
				}
				if b.most["a"] != 1 {
					c.Errorf("the replica had up to %d requests at once", b.most["a"])
				}
				for i, want := range []uint64{30, 0, 0} {
					if l := c.members[i].Load(resnet); l.Arrived != want || l.Answered != want {
						c.Errorf("gateway %d has counted %+v", i, l)
					}
				}
			})
		})
	}
}

// TestRelayedRefusalOfReplica: a replica that asks another function passes on what its gateway said. That is the answer, and no reason for a
// gateway to send the request again.
func TestRelayedRefusalOfReplica(t *testing.T) {
	startCluster(t, Function{}, 3, true, func(c *cluster) {
		var got atomic.Int64
		c.replicas(func(string) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				got.Add(1)
				w.Header().Set("X-Gshare-Reason", reasonUnknown)
				w.WriteHeader(http.StatusNotFound)
			})
		}, "a")
		for i, m := range c.members {
			got.Store(0)
			if a := c.ask(c.Context(), m, strings.NewReader("input")); a.status != 404 || a.reason != "" || got.Load() != 1 {
				c.Errorf("gateway %d: the replica got the request %d times; answer %+v", i, got.Load(), a)
			}
		}
	})
}

// TestRelayedRequests checks what passes through two gateways, and who counts it.
func TestRelayedRequests(t *testing.T) {
	startCluster(t, Function{MaxBody: 4 << 20}, 2, true, func(c *cluster) {
		owner, other := c.members[0], c.members[1]
		var seen http.Header
		left := make(chan struct{}, 1)
		c.replicas(func(string) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				seen = r.Header
				body, _ := io.ReadAll(r.Body)
				switch r.Header.Get("X-Do") {
				case "hang":
					<-r.Context().Done()
					left <- struct{}{}
				case "stream":
					for range 3 {
						io.WriteString(w, "chunk")
						w.(http.Flusher).Flush()
						time.Sleep(time.Second)
					}
				case "break":
					io.WriteString(w, "chunk")
					w.(http.Flusher).Flush()
					panic(http.ErrAbortHandler)
				case "teapot":
					w.WriteHeader(http.StatusTeapot)
				default:
					fmt.Fprint(w, len(body))
				}
			})
		}, "a")
		for name, body := range map[string]io.Reader{"": http.NoBody, "5": strings.NewReader("input"), "3145728": strings.NewReader(strings.Repeat("x", 3<<20)),
			"2097152": struct{ io.Reader }{strings.NewReader(strings.Repeat("x", 2<<20))}} { // the last one of a length that is not said
			if a := c.ask(c.Context(), other, body, "X-Forwarded-For", "192.0.2.1"); a.status != 200 || a.body != name && name != "" {
				c.Errorf("body of %s bytes: %+v", name, a)
			}
			if seen.Get(elapsedHeader) != "" || strings.Count(seen.Get("X-Forwarded-For"), ",") > 1 {
				c.Errorf("the replica got %v", seen)
			}
		}
		if a := c.ask(c.Context(), other, http.NoBody, "X-Do", "teapot"); a.status != http.StatusTeapot {
			c.Errorf("%+v", a)
		}
		if a := c.ask(c.Context(), other, http.NoBody, "X-Do", "hang", "X-Slo-Ttft-Ms", "50"); a.status != 504 || a.reason != reasonDeadline || a.took != 50*ms {
			c.Errorf("a deadline: %+v", a)
		}
		<-left
		ctx, cancel := context.WithTimeout(c.Context(), 20*ms)
		defer cancel()
		if a := c.ask(ctx, other, strings.NewReader("input"), "X-Do", "hang"); a.err == nil {
			c.Errorf("a client that leaves: %+v", a)
		}
		<-left
		if a := c.ask(c.Context(), other, http.NoBody, "X-Do", "break"); a.err == nil {
			c.Errorf("an answer that breaks off: %+v", a)
		}
		r, _ := http.NewRequestWithContext(c.Context(), http.MethodGet, "http://"+other.name+":80/", nil)
		r.Host = "resnet"
		r.Header.Set("X-Do", "stream")
		response, err := c.client.Do(r)
		if err != nil {
			c.Fatal(err)
		}
		begin, chunk := time.Now(), make([]byte, 5)
		if _, err := io.ReadFull(response.Body, chunk); err != nil || time.Since(begin) > 500*ms {
			c.Errorf("the first chunk came after %v: %v", time.Since(begin), err)
		}
		io.Copy(io.Discard, response.Body)
		response.Body.Close()
		if a := c.ask(c.Context(), other, strings.NewReader(strings.Repeat("x", 5<<20))); a.status != 413 {
			c.Errorf("too large: %+v", a)
		}
		synctest.Wait()
		if l := owner.Load(resnet); l.Arrived != 9 || l.Answered != 6 || l.Gone != 1 || l.Failed != 2 || l.InFlight != 0 {
			c.Errorf("the owner has counted %+v", l)
		}
		if l := other.Load(resnet); l.Arrived != 1 || l.Invalid != 1 {
			c.Errorf("the other one has counted %+v", l)
		}
		if owner.kept.bytes+other.kept.bytes != 0 {
			c.Errorf("%d bytes are never released", other.kept.bytes)
		}
	})
}

// TestElapsed checks that a deadline counts from when the first gateway got the request, and that clients cannot say so.
func TestElapsed(t *testing.T) {
	startCluster(t, Function{Idempotent: true}, 2, true, func(c *cluster) {
		c.replicas(func(string) http.Handler { return echo(time.Second) }, "a")
		for port, want := range map[string]time.Duration{":82": 10 * ms, ":80": 50 * ms} {
			scheme := map[string]string{":82": "https://", ":80": "http://"}[port]
			r, err := http.NewRequestWithContext(c.Context(), http.MethodGet, scheme+c.members[0].name+port+"/", nil)
			if err != nil {
				c.Fatal(err)
			}
			r.Host = "resnet"
			r.Header.Set("X-Slo-Ttft-Ms", "50")
			r.Header.Set(elapsedHeader, "40000")
			begin := time.Now()
			response, err := c.client.Do(r)
			if err != nil {
				c.Fatal(err)
			}
			response.Body.Close()
			if took := time.Since(begin); response.StatusCode != 504 || took != want {
				c.Errorf("port %s: status %d after %v, want 504 after %v", port, response.StatusCode, took, want)
			}
		}
	})
	startCluster(t, Function{Idempotent: true}, 3, true, func(c *cluster) {
		c.replicas(func(string) http.Handler { return echo(time.Minute) }, "a")
		close(c.members[0].frozen) // so that the request comes to the next owner when some of the time has passed
		if a := c.ask(c.Context(), c.members[2], strings.NewReader("input"), "X-Slo-Ttft-Ms", "1000"); a.status != 504 || a.took != time.Second {
			c.Errorf("%+v after %v, want 504 after a second", a, a.took)
		}
		if l := c.members[1].Load(resnet); l.Arrived != 1 || l.Failed != 1 {
			c.Errorf("the next owner has counted %+v", l)
		}
	})
}

// TestOwnerDiesWhileFunctionAwaitsItsTurn: a request that waits for a function's turn is refused at its deadline also where the gateway that had it has ended
// meanwhile: by the next owner, or by the gateway to which it came.
func TestOwnerDiesWhileFunctionAwaitsItsTurn(t *testing.T) {
	for _, members := range []int{3, 2} {
		startCluster(t, Function{SLO: 2 * time.Second, Hold: Hold{InTime: true}, Idempotent: true}, members, true, func(c *cluster) {
			time.AfterFunc(time.Second, c.members[0].die)
			if a := c.ask(c.Context(), c.members[members-1], strings.NewReader("input")); a.status != 504 || a.took != 2*time.Second {
				c.Errorf("of %d gateways: %+v after %v, want 504 after 2 s", members, a, a.took)
			}
		})
	}
}

// TestSlowBodyOfFunctionInTurn: the objective counts from when the request has come whole, as without other gateways, also where the gateway that had it has
// ended meanwhile.
func TestSlowBodyOfFunctionInTurn(t *testing.T) {
	for name, dies := range map[string]bool{"served by the owner": false, "and by the next one": true} {
		t.Run(name, func(t *testing.T) {
			startCluster(t, Function{SLO: 2 * time.Second, Hold: Hold{InTime: true}, Idempotent: true}, 3, true, func(c *cluster) {
				if dies {
					time.AfterFunc(4*time.Second, c.members[0].die)
				}
				reader, writer := io.Pipe()
				time.AfterFunc(3*time.Second, func() {
					_, _ = writer.Write([]byte("input"))
					writer.Close()
				})
				if a := c.ask(c.Context(), c.members[2], reader); a.status != 504 || a.took != 5*time.Second {
					c.Errorf("%+v after %v, want 504 after 5 s", a, a.took)
				}
			})
		})
	}
}

// TestWakeUp checks that a request to a function without replicas waits at the owner, which reports it.
func TestWakeUp(t *testing.T) {
	startCluster(t, Function{}, 2, true, func(c *cluster) {
		got := make(chan answer, 1)
		go func() { got <- c.ask(c.Context(), c.members[1], strings.NewReader("input")) }()
		if name := <-c.members[0].Waiting(); name != resnet {
			c.Errorf("%v waits", name)
		}
		select {
		case <-c.members[1].Waiting():
			c.Error("it waits at the other gateway, too")
		default:
		}
		c.replicas(func(string) http.Handler { return echo(0) }, "a")
		if a := <-got; a.status != 200 || a.header.Get("X-Gshare-Cold-Start") != "cold" {
			c.Errorf("%+v", a)
		}
	})
}

// TestUnknownToOwner checks that a function of which the owner does not know yet is served.
func TestUnknownToOwner(t *testing.T) {
	startCluster(t, Function{}, 2, true, func(c *cluster) {
		c.replicas(func(string) http.Handler { return echo(0) }, "a")
		c.members[0].RemoveFunction(resnet)
		if a := c.ask(c.Context(), c.members[1], strings.NewReader("input")); a.status != 200 || a.body != "input" {
			c.Errorf("%+v", a)
		}
	})
}

// loadResult counts requests that were sent, and those of them that were not answered with 200.
type loadResult struct{ sent, lost atomic.Int64 }

// load sends a request to a gateway each 20 ms until a time.
func (c *cluster) load(r *loadResult, wait *sync.WaitGroup, to *member, until time.Time) {
	wait.Go(func() {
		for ; time.Now().Before(until); time.Sleep(20 * ms) {
			wait.Go(func() {
				r.sent.Add(1)
				ctx, cancel := context.WithTimeout(c.Context(), 5*time.Second) // less than a connection may take until it is secured
				defer cancel()
				if a := c.ask(ctx, to, strings.NewReader("input")); a.status != 200 || a.err != nil || a.body != "input" {
					r.lost.Add(1)
				}
			})
		}
	})
}

// TestOwnerDies ends the owner under load, with its clients at the other gateways and at itself. Lost is at most what clients had sent to it directly;
// the others serve on within half a second. The control has no pings: requests hang at a gateway that has frozen.
func TestOwnerDies(t *testing.T) {
	const half = 500 * ms
	for name, test := range map[string]struct {
		pings  bool
		end    func(*member)
		direct bool // requests come to the owner, too
		once   bool // no request may be served twice: those that a replica may have are lost, and no others
	}{
		"killed":              {true, (*member).die, false, false},
		"killed with clients": {true, (*member).die, true, false},
		"frozen":              {true, func(m *member) { close(m.frozen) }, false, false},
		"killed, once":        {true, (*member).die, false, true},
		"frozen, once":        {true, func(m *member) { close(m.frozen) }, false, true},
		"control":             {false, func(m *member) { close(m.frozen) }, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			startCluster(t, Function{Idempotent: !test.once}, 3, test.pings, func(c *cluster) {
				b := newBusy()
				c.replicas(b.echo(15*ms), "a", "b", "c", "d")
				owner := c.members[0]
				var wait sync.WaitGroup
				var result, direct loadResult
				begin := time.Now()
				for _, m := range c.members[1:] {
					c.load(&result, &wait, m, begin.Add(3*time.Second))
				}
				if test.direct {
					c.load(&direct, &wait, owner, begin.Add(time.Second+ms))
				}
				time.Sleep(time.Second + 5*ms)
				had := owner.Load(resnet)
				test.end(owner)
				time.Sleep(half)
				before := c.members[1].Load(resnet).Answered + c.members[2].Load(resnet).Answered
				if test.pings {
					time.Sleep(half)
					if after := c.members[1].Load(resnet).Answered + c.members[2].Load(resnet).Answered; after-before < 48 {
						c.Errorf("%d requests were answered in the second half second, of 50", after-before)
					}
				}
				wait.Wait()
				c.Logf("of %d requests %d were lost, and of %d of clients of the owner %d; it had %d", result.sent.Load(), result.lost.Load(), direct.sent.Load(), direct.lost.Load(), had.Waiting+had.InFlight)
				mayLose := int64(0)
				if test.once {
					mayLose = int64(had.InFlight)
				}
				if lost := result.lost.Load(); test.pings && lost > mayLose || !test.pings && lost < 100 {
					c.Errorf("%d requests were lost", lost)
				}
				if lost := direct.lost.Load(); lost > int64(had.Waiting+had.InFlight) || test.direct && lost == 0 {
					c.Errorf("%d requests of clients of the owner were lost, it had %d", lost, had.Waiting+had.InFlight)
				}
			})
		})
	}
}

// TestSlowOwner: a gateway whose pings come too late answers what a replica has all the same, if nobody else may serve it.
func TestSlowOwner(t *testing.T) {
	for name, idempotent := range map[string]bool{"served once": false, "control": true} {
		t.Run(name, func(t *testing.T) {
			startCluster(t, Function{Idempotent: idempotent}, 3, true, func(c *cluster) {
				var served atomic.Int32
				c.replicas(func(string) http.Handler {
					return http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
						served.Add(1)
						time.Sleep(3 * time.Second)
					})
				}, "a", "b")
				answered := make(chan answer, 1)
				go func() { answered <- c.ask(c.Context(), c.members[1], strings.NewReader("x")) }()
				time.Sleep(100 * ms)
				close(c.members[0].mute)
				want := map[bool]int32{false: 1, true: 2}[idempotent] // the control shows that the gateway was given up
				if a := <-answered; a.status != http.StatusOK || served.Load() != want {
					c.Errorf("%+v, served %d times, want %d", a, served.Load(), want)
				}
			})
		})
	}
}

// TestOwnerLeaves lets the owner end in good order under load: no request is lost, and it owns nothing at once.
func TestOwnerLeaves(t *testing.T) {
	startCluster(t, Function{}, 3, true, func(c *cluster) {
		c.replicas(newBusy().echo(15*ms), "a", "b", "c", "d")
		owner := c.members[0]
		var wait sync.WaitGroup
		var result loadResult
		for _, m := range c.members {
			until := 3 * time.Second
			if m == owner {
				until = time.Second + 900*ms // its last clients go when it has told them to
			}
			c.load(&result, &wait, m, time.Now().Add(until))
		}
		time.Sleep(time.Second)
		owner.peers.Leave()
		time.Sleep(2 * peers.Period)
		had := owner.Load(resnet)
		time.Sleep(800 * ms)
		if l := owner.Load(resnet); l.Arrived != had.Arrived || l.InFlight+l.Waiting > 0 {
			c.Errorf("the gateway that leaves got requests: %+v, then %+v", had, l)
		}
		var ended sync.WaitGroup
		for _, s := range []*http.Server{owner.server, owner.peerServer} {
			ended.Go(func() {
				if err := s.Shutdown(c.Context()); err != nil {
					c.Error(err)
				}
			})
		}
		ended.Wait()
		wait.Wait()
		if result.sent.Load() < 300 || result.lost.Load() != 0 {
			c.Errorf("of %d requests %d were lost", result.sent.Load(), result.lost.Load())
		}
	})
}

// TestOwnerLeavesWithRequests lets the owner end in good order while it has requests of another gateway that take long: they are served once, and whole.
func TestOwnerLeavesWithRequests(t *testing.T) {
	const length, takes = 2 << 20, 10 * time.Second // a body too long to be sent again
	for name, answering := range map[string]bool{"waits for the answer": false, "has begun to answer": true} {
		t.Run(name, func(t *testing.T) {
			startCluster(t, Function{}, 2, true, func(c *cluster) {
				var served atomic.Int32
				c.replicas(func(string) http.Handler {
					return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						served.Add(1)
						n, _ := io.Copy(io.Discard, r.Body)
						if answering {
							_ = http.NewResponseController(w).Flush()
						}
						time.Sleep(takes)
						fmt.Fprint(w, n)
					})
				}, "a", "b")
				owner := c.members[0]
				answers := make(chan answer, 1)
				go func() { answers <- c.ask(c.Context(), c.members[1], strings.NewReader(strings.Repeat("x", length))) }()
				synctest.Wait()
				owner.peers.Leave()
				time.Sleep(2 * peers.Period)
				if err := owner.peerServer.Shutdown(c.Context()); err != nil {
					c.Error(err)
				}
				if a := <-answers; a.status != 200 || a.err != nil || a.body != fmt.Sprint(length) || served.Load() != 1 {
					c.Errorf("%+v; served %d times", a, served.Load())
				}
				time.Sleep(takes) // of a replica whose request was given up
			})
		})
	}
}

// TestSeveralOwners lets two of three gateways own a function: each replica gets requests of one of them only, and both get their parts.
func TestSeveralOwners(t *testing.T) {
	startCluster(t, Function{}, 3, true, func(c *cluster) {
		b := newBusy()
		names := []string{"a", "b", "c", "d", "e"}
		c.replicas(b.echo(5*ms), names...) // all are answered before the rate, at the end of the second, takes the second owner away
		c.members[0].peers.SetCount(resnet.String(), 2)
		time.Sleep(2 * peers.Period)
		var wait sync.WaitGroup
		for i := range 300 {
			wait.Go(func() {
				if a := c.ask(c.Context(), c.members[i%3], strings.NewReader("input")); a.status != 200 {
					c.Errorf("%+v", a)
				}
			})
		}
		wait.Wait()
		for _, name := range names {
			if b.most[name] != 1 {
				c.Errorf("replica %s had up to %d requests at once", name, b.most[name])
			}
		}
		first, second, third := c.members[0].Load(resnet), c.members[1].Load(resnet), c.members[2].Load(resnet)
		if first.Replicas+second.Replicas != 5 || first.Replicas < 2 || second.Replicas < 2 || first.Answered < 80 || second.Answered < 80 || third.Arrived != 0 {
			c.Errorf("loads %+v, %+v and %+v", first, second, third)
		}
		c.members[0].peers.SetCount(resnet.String(), 1)
		if l := c.members[0].Load(resnet); l.Replicas != 5 {
			c.Errorf("the only owner has %d replicas", l.Replicas)
		}
	})
}

// TestDrainOfAnothersReplica drains a replica that another gateway sends requests to now, and that has one of this gateway from before.
func TestDrainOfAnothersReplica(t *testing.T) {
	startCluster(t, Function{}, 2, true, func(c *cluster) {
		names := []string{"a", "b"}
		c.replicas(newBusy().echo(time.Second), names...)
		owner := c.members[0]
		var wait sync.WaitGroup
		for range names {
			wait.Go(func() { c.ask(c.Context(), owner, strings.NewReader("input")) })
		}
		time.Sleep(500 * ms)
		owner.peers.SetCount(resnet.String(), 2)
		if l := owner.Load(resnet); l.Replicas != 1 || l.InFlight != 2 {
			c.Errorf("%+v", l)
		}
		for _, name := range names {
			select {
			case <-owner.StartDrain(resnet, name):
				c.Errorf("replica %s is drained with a request", name)
			default:
			}
		}
		wait.Wait()
		for _, name := range names {
			<-owner.StartDrain(resnet, name)
		}
	})
}

// TestRate checks that a rate above that of one gateway gives a function a second owner, and a low one takes it away.
func TestRate(t *testing.T) {
	startCluster(t, Function{}, 2, true, func(c *cluster) {
		c.replicas(func(string) http.Handler { return echo(0) }, "a", "b")
		owner := c.members[0]
		f := owner.function(resnet)
		for range 20 {
			for range (maxRate + maxRate/10) / owner.view().Count(resnet.String()) {
				f.mu.Lock()
				f.rate.add(time.Now())
				f.mu.Unlock()
			}
			time.Sleep(time.Second)
		}
		time.Sleep(peers.Period)
		if n := c.members[1].view().Count(resnet.String()); n != 2 {
			c.Errorf("%d owners at a high rate", n)
		}
		if n := owner.Load(resnet).Replicas; n != 1 {
			c.Errorf("the owner has %d of two replicas", n)
		}
		time.Sleep(time.Minute)
		if n := c.members[1].view().Count(resnet.String()); n != 1 {
			c.Errorf("%d owners without requests", n)
		}
	})
}

// TestRelayedGRPC sends calls and streams to the gateway that does not own the function, before and after the owner dies.
func TestRelayedGRPC(t *testing.T) {
	startCluster(t, Function{}, 2, true, func(c *cluster) {
		m := &grpcModel{}
		model := &http.Server{Protocols: new(http.Protocols), Handler: m.server()}
		model.Protocols.SetUnencryptedHTTP2(true)
		c.network.run(c.T, "model:80", model)
		for _, g := range c.members {
			if err := g.SetReplicas(resnet, []Replica{{ID: "a", Address: "model:80", Credits: 10}}); err != nil {
				c.Fatal(err)
			}
		}
		conn, err := grpc.NewClient("passthrough:///"+c.members[1].name+":80", grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithAuthority("resnet"),
			grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) { return c.dial(ctx, "", address) }))
		if err != nil {
			c.Fatal(err)
		}
		defer conn.Close()
		var header, trailer metadata.MD
		ctx, cancel := context.WithTimeout(c.Context(), 10*time.Second)
		defer cancel()
		if err := conn.Invoke(ctx, inferMethod, inferRequest("1", 7), new(pb.ModelInferResponse), grpc.Header(&header), grpc.Trailer(&trailer)); err != nil {
			c.Error(err)
		}
		if fmt.Sprint(header["x-header"], trailer["x-trailer"]) != "[h] [t]" || len(m.left) != 1 || m.left[0] > 10*time.Second || m.left[0] < 9*time.Second {
			c.Errorf("header %v, trailer %v, left %v", header, trailer, m.left)
		}
		if err := call(c.Context(), conn, "large", make([]byte, 3<<20)...); err != nil {
			c.Error(err)
		}
		m.fails = func(*pb.ModelInferRequest) error { return status.Error(codes.FailedPrecondition, "50 %: é") }
		if err := call(c.Context(), conn, "2", 7); status.Code(err) != codes.FailedPrecondition || status.Convert(err).Message() != "50 %: é" {
			c.Errorf("the status of the replica: %v", err)
		}
		m.fails = nil
		stream := func() grpc.ClientStream {
			s, err := conn.NewStream(c.Context(), &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, streamMethod)
			if err != nil {
				c.Fatal(err)
			}
			return s
		}
		talk := func(s grpc.ClientStream) error {
			var got pb.ModelInferResponse
			if err := s.SendMsg(inferRequest("s", 1)); err != nil {
				return err
			}
			if err := s.RecvMsg(&got); err != nil || got.GetId() != "s0" {
				return fmt.Errorf("%v, %w", &got, err)
			}
			return s.RecvMsg(&got)
		}
		whole, broken := stream(), stream()
		for range 3 {
			if err := errors.Join(talk(whole), talk(broken)); err != nil {
				c.Error(err)
			}
			time.Sleep(time.Minute)
		}
		_ = whole.CloseSend()
		if err := whole.RecvMsg(new(pb.ModelInferResponse)); !errors.Is(err, io.EOF) {
			c.Errorf("the end of a stream: %v", err)
		}
		if l := c.members[0].Load(resnet); l.Answered != 4 || l.InFlight != 1 || c.members[1].Load(resnet).Arrived != 0 {
			c.Errorf("%+v", l)
		}
		refused := metadata.AppendToOutgoingContext(c.Context(), "x-slo-ttft-ms", "never")
		if s, err := conn.NewStream(refused, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, streamMethod); err != nil {
			c.Error(err)
		} else if err := s.RecvMsg(new(pb.ModelInferResponse)); status.Code(err) != codes.InvalidArgument {
			c.Errorf("a stream that the owner refuses: %v", err)
		}
		c.members[0].die()
		if err := broken.RecvMsg(new(pb.ModelInferResponse)); status.Code(err) != codes.Unavailable {
			c.Errorf("the end of a stream whose gateway dies: %v", err)
		}
		s := stream() // at once, while the gateway that died is still taken for the owner
		if err := errors.Join(talk(s), s.CloseSend(), call(c.Context(), conn, "3", 7)); err != nil {
			c.Error(err)
		}
		if err := s.RecvMsg(new(pb.ModelInferResponse)); !errors.Is(err, io.EOF) {
			c.Error(err)
		}
		if l := c.members[1].Load(resnet); l.Answered != 2 {
			c.Errorf("%+v", l)
		}
	})
}

// TestUnreadStreams checks that streams whose turn has not come do not stop another function's call on the same connection, neither that of their client
// nor that between two gateways. They send more than net/http lets a connection have unread by default.
func TestUnreadStreams(t *testing.T) {
	for name, to := range map[string]int{"connection of a client": 0, "connection between gateways": 1} {
		t.Run(name, func(t *testing.T) {
			startCluster(t, Function{}, 2, true, func(c *cluster) {
				model := &http.Server{Protocols: new(http.Protocols), Handler: (&grpcModel{}).server()}
				model.Protocols.SetUnencryptedHTTP2(true)
				c.network.run(c.T, "model:80", model)
				ready := Function{FunctionName: FunctionName{Namespace: resnet.Namespace}}
				for i := 0; ready.Name == "" || c.members[0].view().Rank(ready.FunctionName.String())[0] != c.members[0].name; i++ {
					ready.Name = fmt.Sprint("ready", i)
				}
				for _, m := range c.members {
					if err := errors.Join(m.SetFunction(ready), m.SetReplicas(ready.FunctionName, []Replica{{ID: "a", Address: "model:80"}})); err != nil {
						c.Fatal(err)
					}
				}
				one := &http.Transport{Protocols: model.Protocols, DialContext: c.dial}
				defer one.CloseIdleConnections()
				message := encode(c.T, inferRequest("1", 1))
				send := func(ctx context.Context, name FunctionName, path string, body io.Reader) (*http.Response, error) {
					r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+c.members[to].name+":80"+path, body)
					if err != nil {
						return nil, err
					}
					r.Host = name.Name
					r.Header.Set("Content-Type", grpcType)
					return one.RoundTrip(r)
				}
				ctx, end := context.WithCancel(c.Context())
				var streams sync.WaitGroup
				for range 90 { // fewer than are held
					streams.Go(func() {
						body := io.MultiReader(bytes.NewReader(message), bytes.NewReader(make([]byte, 1<<20)))
						if _, err := send(ctx, resnet, streamMethod, body); !errors.Is(err, context.Canceled) {
							c.Errorf("a stream to a function without replicas ended with %v", err)
						}
					})
				}
				synctest.Wait()
				begin := time.Now()
				if response, err := send(c.Context(), ready.FunctionName, inferMethod, bytes.NewReader(message)); err != nil {
					c.Error(err)
				} else {
					_, err := io.Copy(io.Discard, response.Body)
					if got := response.Trailer.Get(grpcStatus); got != "0" || err != nil || time.Since(begin) > time.Second {
						c.Errorf("status %q after %v, error %v", got, time.Since(begin), err)
					}
					response.Body.Close()
				}
				end()
				streams.Wait()
				synctest.Wait()
			})
		})
	}
}

// TestRepeatable reads a body twice, in each state in which the first reader may be.
func TestRepeatable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		from, client := io.Pipe()
		var all bodies
		whole := 0
		b := newRepeatable(nil, from, &all, func() { whole++ })
		first := b.reader()
		go client.Write([]byte("ab"))
		p := make([]byte, 10)
		if n, err := first.Read(p); n != 2 || err != nil {
			t.Errorf("%d, %v", n, err)
		}
		blocked := make(chan error, 1)
		go func() { _, err := first.Read(make([]byte, 10)); blocked <- err }()
		synctest.Wait()
		first.Close()
		second := b.reader()
		go func() { client.Write([]byte("cd")); client.Close() }()
		text, err := io.ReadAll(second)
		if string(text) != "abcd" || err != nil || whole != 1 || b.failure() != nil {
			t.Errorf("the second reader got %q, %v", text, err)
		}
		if err := <-blocked; !errors.Is(err, errBodyClosed) {
			t.Errorf("the first reader got %v", err)
		}
		if all.bytes != 4 || !b.isWhole() {
			t.Errorf("%d bytes are kept", all.bytes)
		}
		b.close()
		if _, err := b.reader().Read(p); all.bytes != 0 || err == nil {
			t.Errorf("%d bytes are kept after the end, %v", all.bytes, err)
		}
		b = newRepeatable(nil, io.MultiReader(strings.NewReader(strings.Repeat("x", int(maxKept)+1))), &all, func() {})
		if n, err := io.Copy(io.Discard, b.reader()); n != int64(maxKept)+1 || err != nil || b.isWhole() || all.bytes != 0 {
			t.Errorf("of a long body %d bytes came, %d are kept, %v", n, all.bytes, err)
		}
	})
}
