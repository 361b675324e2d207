package gateway

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

var search = FunctionName{"default", "search"}

// guest adds a function and makes resnet its host.
func (w *world) guest(f Function) {
	w.Helper()
	f.FunctionName = search
	if err := w.gateway.SetFunction(f); err != nil {
		w.Fatal(err)
	}
	w.host(resnet)
}

// host sets the host of search.
func (w *world) host(name FunctionName) {
	w.Helper()
	if err := w.gateway.SetHost(search, name); err != nil {
		w.Fatal(err)
	}
}

// setReplicas sets the replicas of a function, which are being served already.
func (w *world) setReplicas(name FunctionName, replicas ...string) {
	w.Helper()
	var list []Replica
	for _, r := range replicas {
		list = append(list, Replica{ID: r, Address: r + ":80"})
	}
	if err := w.gateway.SetReplicas(name, list); err != nil {
		w.Fatal(err)
	}
}

// counts returns the counters of a function, except those that depend on when they are read.
func (w *world) counts(name FunctionName) Load {
	l := w.gateway.Load(name)
	l.P50, l.P99, l.Replicas = 0, 0, 0
	return l
}

// TestMixedBatch checks that requests of a host and its guest are sent together, that each gets its own rows, and that each function counts its own
// requests.
func TestMixedBatch(t *testing.T) {
	for name, own := range map[string]Function{
		"both have batches": batched,
		"only the host has": {Protocol: OIP, SLO: 10 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			start(t, batched, func(w *world) {
				m := &model{took: constant(10 * ms)}
				w.replicas(m, 1, 0, "a")
				w.guest(own)
				var wait sync.WaitGroup
				for i := range 9 {
					wait.Go(func() {
						time.Sleep(time.Duration(min(i, 1)) * ms) // the first one alone, while the others arrive
						id, value := fmt.Sprint("id", i), float64(i)
						if a := w.infer(w.Context(), input(id, value), "Host", []string{"resnet", "search"}[i%2]); !right(a, id, value) {
							w.Errorf("request %d: %+v", i, a)
						}
					})
				}
				wait.Wait()
				if got := m.sizes(); got != "1 8" {
					w.Errorf("batches %s, want one of all that waited", got)
				}
				if got, want := w.counts(resnet), (Load{Arrived: 5, Received: 5, Answered: 5, InTime: 5}); got != want {
					w.Errorf("host %+v, want %+v", got, want)
				}
				if got, want := w.counts(search), (Load{Arrived: 4, Received: 4, Answered: 4, InTime: 4}); got != want {
					w.Errorf("guest %+v, want %+v", got, want)
				}
				if l := w.gateway.Load(search); l.P50 < 15*ms || l.Replicas != 0 {
					w.Errorf("guest %+v, want latencies of its own, and no replica", l)
				}
				if got := w.answers(search); got != 4 {
					w.Errorf("metrics have %v requests of the guest, want 4", got)
				}
			})
		})
	}
}

// TestTimeoutsOfMixedBatch: each request of a batch is given up after the timeout of its own function, and the others are answered.
func TestTimeoutsOfMixedBatch(t *testing.T) {
	host := batched
	host.Timeout = time.Minute
	for name, c := range map[string]struct {
		guest time.Duration // its timeout
		took  time.Duration // time that the batch takes
		want  [2]int        // status for the host's client and the guest's
		after [2]time.Duration
	}{
		"both in time":     {20 * time.Second, 10 * time.Second, [2]int{200, 200}, [2]time.Duration{10 * time.Second, 10 * time.Second}},
		"guest gives up":   {5 * time.Second, 10 * time.Second, [2]int{200, 504}, [2]time.Duration{10 * time.Second, 5 * time.Second}},
		"it hangs":         {5 * time.Second, time.Hour, [2]int{504, 504}, [2]time.Duration{time.Minute, 5 * time.Second}},
		"the host is less": {2 * time.Minute, 90 * time.Second, [2]int{504, 200}, [2]time.Duration{time.Minute, 90 * time.Second}},
	} {
		t.Run(name, func(t *testing.T) {
			start(t, host, func(w *world) {
				m := &model{took: func(rows int) time.Duration {
					if rows == 1 {
						return 10 * ms
					}
					return c.took
				}}
				w.replicas(m, 1, 0, "a")
				w.guest(Function{Protocol: OIP, SLO: 10 * time.Second, Timeout: c.guest})
				var wait sync.WaitGroup
				wait.Go(func() { w.infer(w.Context(), input("first", 0)) })
				time.Sleep(ms)
				for i, name := range []string{"resnet", "search"} {
					wait.Go(func() {
						a := w.infer(w.Context(), input("", float64(i)), "Host", name)
						if a.status != c.want[i] || a.took != 9*ms+c.after[i] || a.status == 504 && a.reason != reasonDeadline {
							w.Errorf("%s: %+v, want %d after %v", name, a, c.want[i], c.after[i])
						}
					})
				}
				wait.Wait()
				time.Sleep(time.Hour) // nothing is given up twice
				if got := m.sizes(); got != "1 2" {
					w.Errorf("the test shows nothing: batches %s", got)
				}
				for i, f := range []FunctionName{resnet, search} {
					l := w.gateway.Load(f)
					if failed := c.want[i] == 504; l.Failed != map[bool]uint64{true: 1}[failed] || l.InFlight != 0 || l.Waiting != 0 {
						w.Errorf("%v: %+v", f, l)
					}
				}
			})
		})
	}
}

// answers returns the number of a function's responses with status 200, according to the metrics.
func (w *world) answers(f FunctionName) (n float64) {
	w.Helper()
	families, err := w.registry.Gather()
	if err != nil {
		w.Fatal(err)
	}
	for _, family := range families {
		for _, m := range family.Metric {
			if family.GetName() == "gshare_gateway_requests_total" && label(m, "function") == f.Name && label(m, "code") == "200" {
				n += m.Counter.GetValue()
			}
		}
	}
	return n
}

// TestGuestDeadline checks that a guest's own objective applies to its requests, both in the queue with those of the host and in responses.
func TestGuestDeadline(t *testing.T) {
	for name, c := range map[string]struct {
		guest  time.Duration // its objective
		order  string        // of the requests as they reach the replica
		late   bool          // the guest's request is refused
		inTime uint64        // number for the guest
	}{
		"tighter":         {50 * ms, "h0 g h1 h2", false, 1},
		"looser":          {10 * time.Second, "h0 h1 h2 g", false, 1},
		"cannot be kept":  {15 * ms, "h0 h1 h2", true, 0},
		"that of none":    {0, "h0 h1 h2 g", false, 1},
		"just the second": {25 * ms, "h0 g h1 h2", false, 1},
	} {
		t.Run(name, func(t *testing.T) {
			start(t, Function{SLO: time.Second}, func(w *world) {
				var mu sync.Mutex
				var order []string
				w.replicas(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
					mu.Lock()
					order = append(order, r.Header.Get("Name"))
					mu.Unlock()
					time.Sleep(10 * ms)
				}), 1, 10*ms, "a")
				w.guest(Function{SLO: c.guest})
				var wait sync.WaitGroup
				for i := range 3 {
					wait.Go(func() {
						time.Sleep(time.Duration(i) * ms)
						w.ask(w.Context(), "", "Name", fmt.Sprint("h", i))
					})
				}
				wait.Go(func() {
					time.Sleep(3 * ms)
					if a := w.ask(w.Context(), "", "Name", "g", "Host", "search"); (a.reason == reasonLate) != c.late {
						w.Errorf("%+v", a)
					}
				})
				wait.Wait()
				if got := strings.Join(order, " "); got != c.order {
					w.Errorf("order %s, want %s", got, c.order)
				}
				want := Load{Arrived: 1, Received: 1, Answered: 1, InTime: c.inTime}
				if c.late {
					want = Load{Arrived: 1, Received: 1, Refused: 1}
				}
				if got := w.counts(search); got != want {
					w.Errorf("guest %+v, want %+v", got, want)
				}
				if got, want := w.counts(resnet), (Load{Arrived: 3, Received: 3, Answered: 3, InTime: 3}); got != want {
					w.Errorf("host %+v, want %+v", got, want)
				}
			})
		})
	}
}

// TestGuestBounds checks that neither a host nor its guest can take the other's places in the queue.
func TestGuestBounds(t *testing.T) {
	for _, flood := range []string{"resnet", "search"} {
		t.Run("of "+flood, func(t *testing.T) {
			start(t, Function{MaxQueued: 5}, func(w *world) {
				w.replicas(echo(10*ms), 1, 0, "a")
				w.guest(Function{MaxQueued: 5})
				var wait sync.WaitGroup
				refused := map[string]int{}
				var mu sync.Mutex
				ask := func(host string) {
					if a := w.ask(w.Context(), "", "Host", host); a.status != 200 {
						mu.Lock()
						refused[host+" "+a.reason]++
						mu.Unlock()
					}
				}
				for range 20 {
					wait.Go(func() { ask(flood) })
				}
				time.Sleep(ms)
				for _, other := range []string{"resnet", "search"} {
					for range 5 {
						if other != flood {
							wait.Go(func() { ask(other) })
						}
					}
				}
				wait.Wait()
				if want := map[string]int{flood + " " + reasonQueueFull: 14}; fmt.Sprint(refused) != fmt.Sprint(want) {
					w.Errorf("refused %v, want %v", refused, want)
				}
			})
		})
	}
}

// namespaces identifies callers: address 10.0.0.1 is in namespace default, and any other in namespace others.
type namespaces struct{}

func (namespaces) FindToken(string) string                         { return "" }
func (namespaces) OfToken(context.Context, string) (string, error) { return "", ErrCallersUnavailable }
func (namespaces) OfAddress(_ context.Context, a netip.Addr) (string, error) {
	if a == netip.MustParseAddr("10.0.0.1") {
		return "default", nil
	}
	return "others", nil
}

// TestGuestAccess checks that the right to call a host does not include the right to call its guest, nor the other way round.
func TestGuestAccess(t *testing.T) {
	for name, c := range map[string]struct{ host, guest []string }{
		"host":    {[]string{"others"}, nil},
		"guest":   {nil, []string{"others"}},
		"both":    {[]string{"others"}, []string{"others"}},
		"neither": {nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			g := New(Config{Callers: namespaces{}, Upstream: upstream{nil}})
			for name, callers := range map[FunctionName][]string{resnet: c.host, search: c.guest} {
				if err := g.SetFunction(Function{FunctionName: name, Callers: callers}); err != nil {
					t.Fatal(err)
				}
			}
			w := &world{T: t, gateway: g}
			w.setReplicas(resnet, "a")
			w.host(resnet)
			for host, callers := range map[string][]string{"resnet": c.host, "search": c.guest} {
				for address, allowed := range map[string]bool{"10.0.0.1:1": true, "10.0.0.2:1": slices.Contains(callers, "others")} {
					if got := statusOf(g, host, address); (got == http.StatusOK) != allowed {
						t.Errorf("%s from %s: status %d", host, address, got)
					}
				}
			}
		})
	}
}

// statusOf returns the status of the response to a request from an address.
func statusOf(g *Gateway, host, from string) int {
	r, _ := http.NewRequest(http.MethodGet, "http://"+host+"/", http.NoBody) // a valid address
	r.RemoteAddr = from
	c := &statusClient{client: client{header: http.Header{}}}
	g.ServeHTTP(c, r)
	return c.status
}

type statusClient struct {
	client
	status int
}

func (c *statusClient) WriteHeader(status int) { c.status = status }

// TestHostTakesOver checks where a guest's requests go while replicas of the guest and its host come and go, and that all are answered.
func TestHostTakesOver(t *testing.T) {
	start(t, Function{}, func(w *world) {
		var mu sync.Mutex
		at := map[string]int{}
		for _, name := range []string{"host", "own"} {
			w.network.serve(w.T, name+":80", http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
				mu.Lock()
				at[name]++
				mu.Unlock()
				time.Sleep(2 * ms)
			}))
		}
		if err := w.gateway.SetFunction(Function{FunctionName: search}); err != nil {
			w.Fatal(err)
		}
		var wait sync.WaitGroup
		lost := 0
		ask := func(n int) {
			for range n {
				wait.Go(func() {
					if a := w.ask(w.Context(), "", "Host", "search"); a.status != 200 {
						mu.Lock()
						lost++
						mu.Unlock()
						w.Errorf("%+v", a)
					}
				})
			}
		}
		step := func(name string, change func(), want string) {
			w.Helper()
			ask(5) // requests that wait during the change
			synctest.Wait()
			change()
			synctest.Wait()
			time.Sleep(100 * ms)
			mu.Lock()
			clear(at)
			mu.Unlock()
			ask(3)
			time.Sleep(100 * ms)
			mu.Lock()
			defer mu.Unlock()
			if got := fmt.Sprint(at); got != "map["+want+"]" {
				w.Errorf("%s: %s, want %s", name, got, want)
			}
			if l := w.gateway.Load(search); l.Waiting+l.InFlight > 0 {
				w.Errorf("%s: %d still wait, %d are with replicas", name, l.Waiting, l.InFlight)
			}
		}
		w.setReplicas(search, "own")
		step("no host", func() {}, "own:3")
		step("a host without replicas", func() { w.host(resnet) }, "own:3")
		step("it gets some", func() { w.setReplicas(resnet, "host") }, "host:3")
		step("its own go", func() { <-w.gateway.StartDrain(search, "own"); w.setReplicas(search) }, "host:3")
		step("none has any, then it gets some", func() { w.setReplicas(resnet); ask(2); synctest.Wait(); w.setReplicas(search, "own") }, "own:3")
		step("and the host again", func() { w.setReplicas(resnet, "host"); w.setReplicas(search) }, "host:3")
		step("no host any more, before it has its own", func() { w.host(FunctionName{}) }, "host:3")
		step("it has its own", func() { w.setReplicas(search, "own") }, "own:3")
		step("from then on", func() { w.setReplicas(resnet) }, "own:3")
		w.setReplicas(resnet, "host")
		w.setReplicas(search)
		ask(1)
		time.Sleep(100 * ms)
		if l := w.gateway.Load(search); l.Waiting != 1 {
			w.Errorf("%+v, want one that waits for a replica of its own", l)
		}
		w.host(resnet)
		step("the host again", func() {}, "host:3")
		step("the host is deleted", func() {
			w.setReplicas(resnet)
			ask(2)
			synctest.Wait()
			w.gateway.RemoveFunction(resnet)
			w.setReplicas(search, "own")
		}, "own:3")
		wait.Wait()
		if l := w.counts(search); lost != 0 || l.Arrived != l.Answered || l.Waiting+l.InFlight != 0 {
			w.Errorf("%d lost; %+v", lost, l)
		}
	})
}

// TestGuestDeleted checks that a deleted guest's requests in its host's queue are refused, and no others.
func TestGuestDeleted(t *testing.T) {
	start(t, Function{}, func(w *world) {
		w.guest(Function{})
		var wait sync.WaitGroup
		for host, want := range map[string]int{"resnet": 200, "search": 404} {
			wait.Go(func() {
				if a := w.ask(w.Context(), "", "Host", host); a.status != want {
					w.Errorf("%s: %+v", host, a)
				}
			})
		}
		synctest.Wait()
		w.gateway.RemoveFunction(search)
		w.replicas(echo(ms), 1, 0, "a")
		wait.Wait()
		if len(w.gateway.guests) != 0 {
			w.Errorf("%d hosts are remembered", len(w.gateway.guests))
		}
	})
}

// TestDropHost checks that a dropped host gets no more requests of the guest, and that those waiting for the host then wait for the guest's own
// replicas.
func TestDropHost(t *testing.T) {
	start(t, Function{}, func(w *world) {
		w.guest(Function{})
		var wait sync.WaitGroup
		ask := func() {
			wait.Go(func() {
				if a := w.ask(w.Context(), "", "Host", "search"); a.status != 200 || a.header.Get("X-Own") == "" {
					w.Errorf("%+v", a)
				}
			})
			synctest.Wait()
		}
		ask()
		w.gateway.DropHost(search)
		ask()
		w.replicas(echo(0), 1, 0, "host")
		synctest.Wait()
		if l := w.gateway.Load(search); l.Waiting != 2 {
			w.Errorf("%+v, want two that wait", l)
		}
		w.network.serve(w.T, "own:80", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("X-Own", "1") }))
		w.setReplicas(search, "own")
		wait.Wait()
		w.gateway.DropHost(search) // it has none
		w.gateway.DropHost(FunctionName{"default", "unknown"})
	})
}

// TestReplicaFailsAfterDropHost checks that a dropped host does not get back the guest's requests that were at one of its replicas when that failed: the
// guest's own replicas answer them, or they are refused if the guest is deleted. The host's own requests are retried.
func TestReplicaFailsAfterDropHost(t *testing.T) {
	drop := func(w *world) { w.gateway.DropHost(search) }
	for name, c := range map[string]struct {
		host     Function
		credits  int // for both requests at once
		leave    func(w *world)
		ownFirst bool // the guest has its replica before the host's fails
		want     int  // status for the guest's client
	}{
		"alone":                     {Function{Protocol: OIP, Idempotent: true}, 2, drop, true, 200},
		"alone, held":               {Function{Protocol: OIP, Idempotent: true}, 2, drop, false, 200},
		"in a batch":                {idempotent(batched), 1, drop, true, 200},
		"in a batch, held":          {idempotent(batched), 1, drop, false, 200},
		"alone, guest deleted":      {Function{Protocol: OIP, Idempotent: true}, 2, func(w *world) { w.gateway.RemoveFunction(search) }, false, 404},
		"in a batch, guest deleted": {idempotent(batched), 1, func(w *world) { w.gateway.RemoveFunction(search) }, false, 404},
	} {
		t.Run(name, func(t *testing.T) {
			start(t, c.host, func(w *world) {
				other, own := &model{}, &model{}
				fail := make(chan struct{})
				var calls atomic.Int32
				w.replicas(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
					if calls.Add(1) == 1 { // while the others wait, so that they can be in one batch
						time.Sleep(10 * ms)
						other.ServeHTTP(rw, r)
						return
					}
					<-fail
					panic(http.ErrAbortHandler)
				}), c.credits, 0, "old")
				w.guest(Function{Protocol: OIP, Idempotent: true})
				w.network.serve(w.T, "own:80", own)
				w.network.serve(w.T, "new:80", other)
				var wait sync.WaitGroup
				wait.Go(func() { w.infer(w.Context(), input("first", 1)) })
				synctest.Wait()
				for value, name := range map[float64]string{2: "resnet", 3: "search"} {
					wait.Go(func() {
						want := 200
						if name == "search" {
							want = c.want
						}
						if a := w.infer(w.Context(), input("", value), "Host", name); a.status != want {
							w.Errorf("%s: %+v, want %d", name, a, want)
						}
					})
				}
				time.Sleep(20 * ms)
				if got := w.gateway.Load(search); got.InFlight != 1 {
					w.Fatalf("the test shows nothing: %+v", got)
				}
				c.leave(w)
				w.setReplicas(resnet, "new")
				if c.ownFirst {
					w.setReplicas(search, "own")
				}
				close(fail)
				synctest.Wait()
				w.setReplicas(search, "own")
				wait.Wait()
				if got, want := fmt.Sprint(other.batches), "[[1] [2]]"; got != want {
					w.Errorf("the host has served %s, want %s", got, want)
				}
				if got, want := fmt.Sprint(own.batches), map[int]string{200: "[[3]]", 404: "[]"}[c.want]; got != want {
					w.Errorf("the guest has served %s, want %s", got, want)
				}
			})
		})
	}
}

// TestNoHost checks which functions cannot be hosts.
func TestNoHost(t *testing.T) {
	g := New(Config{})
	other, batches := FunctionName{"others", "resnet"}, FunctionName{"default", "batches"}
	for _, f := range []Function{{FunctionName: resnet}, {FunctionName: search}, {FunctionName: other}, {FunctionName: batches, Protocol: OIP}} {
		if err := g.SetFunction(f); err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		of, host FunctionName
		ok       bool
	}{
		"another":          {search, resnet, true},
		"again":            {search, resnet, true},
		"unknown guest":    {FunctionName{"default", "x"}, resnet, true},
		"itself":           {resnet, resnet, false},
		"unknown":          {resnet, FunctionName{"default", "x"}, false},
		"other namespace":  {resnet, other, false},
		"another protocol": {resnet, batches, false},
	} {
		if err := g.SetHost(c.of, c.host); (err == nil) != c.ok {
			t.Errorf("%s: error %v", name, err)
		}
	}
}

// TestHostingAccount changes hosts and replicas at random while requests are sent and given up at random. It checks at all times that each function's
// requests that have arrived are answered, refused, failed, gone, waiting or in flight, and at the end that none is waiting.
func TestHostingAccount(t *testing.T) {
	for seed := range uint64(4) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			start(t, Function{Protocol: OIP, MaxBatch: 4, Hold: Hold{For: 50 * ms}}, func(w *world) {
				random := rand.New(rand.NewPCG(seed, 0))
				m := &model{took: constant(3 * ms)}
				w.replicas(m, 1, 0, "a", "b")
				w.guest(Function{Protocol: OIP, Hold: Hold{For: 50 * ms}})
				var wait sync.WaitGroup
				for range 400 {
					host, patience := []string{"resnet", "search"}[random.IntN(2)], time.Duration(1+random.IntN(40))*ms
					wait.Go(func() {
						ctx, leave := context.WithTimeout(w.Context(), patience)
						defer leave()
						w.infer(ctx, input("", 1), "Host", host)
					})
					switch random.IntN(12) {
					case 0:
						w.host(resnet)
					case 1:
						w.host(FunctionName{})
					case 2:
						w.setReplicas(resnet, []string{"a", "b"}[:random.IntN(3)]...)
					case 3:
						w.setReplicas(search, []string{"a", "b"}[:random.IntN(3)]...)
					}
					time.Sleep(time.Duration(random.IntN(3)) * ms)
					for _, name := range []FunctionName{resnet, search} {
						if l := w.gateway.Load(name); l.Arrived != l.Answered+l.Refused+l.Failed+l.Gone+uint64(l.Waiting)+uint64(l.InFlight) || l.Waiting < 0 || l.InFlight < 0 {
							w.Fatalf("%s: %+v", name, l)
						}
					}
				}
				wait.Wait()
				time.Sleep(time.Minute)
				for _, name := range []FunctionName{resnet, search} {
					f := w.gateway.function(name)
					if l := f.load(); l.Waiting+l.InFlight != 0 || len(f.items)+len(f.held) != 0 || l.Answered == 0 {
						w.Errorf("%s: %+v, %d items", name, l, len(f.items)+len(f.held))
					}
				}
			})
		})
	}
}

// TestGuestOwner checks that the requests of a host and its guests go to one gateway, so that they can be in one batch, and that without a host the
// guest's own gateway gets them.
func TestGuestOwner(t *testing.T) {
	startCluster(t, Function{}, 2, false, func(c *cluster) {
		c.replicas(func(string) http.Handler { return echo(0) }, "a")
		guest := FunctionName{"default", "guest"}
		for i := 0; c.members[0].view().Rank(guest.String())[0] == c.members[0].name; i++ {
			guest.Name = fmt.Sprint("guest-", i)
		}
		for _, m := range c.members {
			if err := m.SetFunction(Function{FunctionName: guest}); err != nil {
				c.Fatal(err)
			}
		}
		for _, step := range []struct {
			host   FunctionName
			served [2]uint64 // total served by the owner of the host and by that of the guest
		}{{resnet, [2]uint64{2, 0}}, {FunctionName{}, [2]uint64{2, 2}}} {
			for _, m := range c.members {
				if err := m.SetHost(guest, step.host); err != nil {
					c.Fatal(err)
				}
				if step.host == (FunctionName{}) {
					if err := m.SetReplicas(guest, []Replica{{ID: "a", Address: "a:80"}}); err != nil {
						c.Fatal(err)
					}
				}
			}
			for _, m := range c.members {
				r, err := http.NewRequestWithContext(c.Context(), http.MethodGet, "http://"+m.name+":80/", http.NoBody)
				if err != nil {
					c.Fatal(err)
				}
				r.Host = guest.Name
				response, err := c.client.Do(r)
				if err != nil || response.StatusCode != http.StatusOK {
					c.Fatal(response, err)
				}
				response.Body.Close()
			}
			synctest.Wait()
			if got := [2]uint64{c.members[0].Load(guest).Answered, c.members[1].Load(guest).Answered}; got != step.served {
				c.Errorf("host %q: the owners have answered %v, want %v", step.host.Name, got, step.served)
			}
		}
	})
}
