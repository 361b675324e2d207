package gateway

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

var full = flag.Bool("full", false, "send 100,000 random requests, not 2,000, and have 1,000 streams at once, not 100")

// account counts the requests that the test sends, by their expected outcome.
type account struct {
	*world
	batched bool

	arrived, received, invalid atomic.Uint64
	garbled                    atomic.Uint64 // complete but not JSON, which is noticed only if there is room for the body
	answered                   atomic.Uint64 // completely, by a replica
}

// sampler continuously reads the counts of a function. It runs outside the bubble, where time does not pass while a goroutine is busy.
type sampler struct {
	function atomic.Pointer[function]
	samples  int
	unequal  *Load // the first load that was not the sum of its parts
	stop     atomic.Bool
	ended    chan struct{}
}

func (s *sampler) run() {
	defer close(s.ended)
	for ; !s.stop.Load(); runtime.Gosched() {
		if f := s.function.Load(); f != nil && s.unequal == nil {
			s.sample(f)
		}
	}
}

func (s *sampler) sample(f *function) {
	var l Load
	f.count(func(now *statistics) { l = now.counts })
	s.samples++
	if l.Arrived != l.Answered+l.Refused+l.Failed+l.Gone+uint64(l.Waiting)+uint64(l.InFlight) || l.InFlight < 0 || l.Received+l.Invalid > l.Arrived {
		s.unequal = &l
	}
}

// TestAccount sends random requests, many of which are faulty or given up, to replicas that refuse, fail, hang, die, drain, go and back off. It checks
// at all times that each request that has arrived is answered, refused, failed, gone, waiting or in flight, and at the end that the gateway has
// counted what the clients have sent.
func TestAccount(t *testing.T) {
	requests := 2000
	if *full {
		requests = 100_000
	}
	bounds := Function{SLO: 100 * ms, Timeout: 300 * ms, MaxQueued: 20, MaxBody: 2048, MaxBytes: 8192, Hold: Hold{Requests: 10, For: 30 * ms}}
	for name, protocol := range map[string]Protocol{"one by one": HTTP, "in batches": OIP, "streams": OpenAI} {
		t.Run(name, func(t *testing.T) {
			f := bounds
			f.Protocol = protocol
			if protocol == OIP {
				f.MaxBatch = 4
			}
			s := &sampler{ended: make(chan struct{})}
			go s.run()
			start(t, f, func(w *world) {
				s.function.Store(w.gateway.function(resnet))
				(&account{world: w, batched: protocol == OIP}).run(requests)
			})
			s.stop.Store(true)
			<-s.ended
			if s.unequal != nil {
				t.Errorf("at one of %d moments: %+v", s.samples, *s.unequal)
			}
			t.Logf("%d samples", s.samples)
		})
	}
}

func (a *account) run(requests int) {
	ended, stop := context.WithCancel(a.Context())
	var clients, faults sync.WaitGroup
	faults.Go(func() { a.disturb(ended) })
	arrivals := rand.New(rand.NewPCG(4, 0))
	for i := range requests {
		clients.Go(func() { a.client(i, rand.New(rand.NewPCG(1, uint64(i)))) })
		time.Sleep(time.Duration(arrivals.IntN(2000)) * time.Microsecond)
	}
	stop()
	faults.Wait()
	clients.Wait()
	time.Sleep(time.Second) // by then, requests that hang at a replica have ended
	synctest.Wait()
	l := a.gateway.Load(resnet)
	arrived, received, invalid, garbled, answered := a.arrived.Load(), a.received.Load(), a.invalid.Load(), a.garbled.Load(), a.answered.Load()
	a.Logf("%+v", l)
	if l.Waiting != 0 || l.InFlight != 0 || l.Arrived != arrived || l.Answered < answered || l.Received < received || l.Invalid < invalid ||
		l.Received+l.Invalid != received+invalid+garbled {
		a.Errorf("the clients sent %d requests, %d valid, %d invalid and %d that are not JSON, and have %d answers; counted are %+v", arrived, received, invalid,
			garbled, answered, l)
	}
	if min(l.Answered, l.InTime, l.Refused-l.Invalid, l.Invalid, l.Failed, l.Arrived-l.Received-l.Invalid, l.Gone-(l.Arrived-l.Received-l.Invalid)) == 0 {
		a.Error("some end did not occur")
	}
	if a.refusals(resnet, reasonBackOff) == 0 {
		a.Error("no request was refused while all replicas backed off")
	}
	if n := histogram(a.T, a.registry, "gshare_gateway_request_duration_seconds"); n != l.Arrived {
		a.Errorf("the metrics have %d requests", n)
	}
	if f := a.gateway.function(resnet); f.bodies.bytes != 0 {
		a.Errorf("%d bytes are never released", f.bodies.bytes)
	}
}

// client sends one random request.
func (a *account) client(i int, r *rand.Rand) {
	c, err := a.network.dial(a.Context(), "", "gateway:80")
	if err != nil {
		a.Error(err)
		return
	}
	defer c.Close()
	pause := func(most time.Duration) { time.Sleep(time.Duration(r.Int64N(int64(most)))) }
	path, body := "/predict", strings.Repeat("x", r.IntN(1500))
	if a.batched && r.IntN(4) > 0 {
		path, body = inferPath, input(fmt.Sprint(i), make([]float64, 1+r.IntN(2))...)
	}
	head := func(host, headers string, length int) string {
		return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: %s\r\n%sContent-Length: %d\r\n\r\n", path, host, headers, length)
	}
	// send sends the beginning of a request, and then the rest.
	send := func(begin, rest string, counters ...*atomic.Uint64) {
		if _, err := io.WriteString(c, begin); err != nil {
			a.Errorf("%q: %v", begin, err)
			return
		}
		if rest != "" {
			pause(20 * ms)
			_, _ = io.WriteString(c, rest) // fails if the gateway has refused the request
		}
		for _, n := range counters {
			n.Add(1)
		}
	}
	switch kind := r.IntN(20); kind {
	case 0: // leaves within the header, when the function is still unknown
		send("POST / HTTP/1.1\r\nHost: res", "")
	case 1: // leaves before the body, or within it
		send(head("resnet", "", len(body)+1)+body[:r.IntN(len(body)+1)], "", &a.arrived)
		pause(10 * ms)
	case 2:
		send(head("resnet", "Transfer-Encoding: chunked\r\n", 1)+"3\r\nab", "", &a.arrived)
	case 3: // the rest never comes. It is short, since it keeps its part of MaxBytes for bodyTimeout
		send(head("resnet", "", 2)+"x", "", &a.arrived, &a.invalid)
		a.read(c)
	case 4:
		send(head("resnet", "", 2049), strings.Repeat("x", 2049), &a.arrived, &a.invalid)
		a.read(c)
	case 5:
		send("POST / HTTP/1.1\r\nHost: resnet\r\nTransfer-Encoding: chunked\r\n\r\n", "zz\r\n", &a.arrived, &a.invalid)
		a.read(c)
	case 6:
		send(head("resnet", timeoutHeaders[0]+": -1\r\n", len(body)), body, &a.arrived, &a.invalid)
		a.read(c)
	case 7:
		send(head("bert", "", len(body))+body, "")
		a.read(c)
	case 8:
		if a.batched {
			path = inferPath
			send(head("resnet", "", 3), "xyz", &a.arrived, &a.garbled)
			a.read(c)
		}
	case 9, 10, 11: // leaves while the request waits or is in flight, or is answered
		send(head("resnet", "", len(body))+body, "", &a.arrived, &a.received)
		pause(60 * ms)
	case 12, 13: // its deadline passes while the body comes, or while it waits or is in flight
		send(head("resnet", fmt.Sprintf("%s: %d\r\n", timeoutHeaders[r.IntN(2)], 1+r.IntN(60)), len(body)), body, &a.arrived, &a.received)
		a.read(c)
	default:
		send(head("resnet", "", len(body)), body, &a.arrived, &a.received)
		a.read(c)
	}
}

// read reads a response to its end.
func (a *account) read(c net.Conn) {
	response, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return
	}
	_, err = io.Copy(io.Discard, response.Body)
	if err == nil && response.Header.Get("X-Gshare-Cold-Start") != "" {
		a.answered.Add(1)
	}
}

// disturb changes the replicas until ctx ends, and leaves three running ones.
func (a *account) disturb(ctx context.Context) {
	r := rand.New(rand.NewPCG(2, 0))
	names := []string{"a", "b", "c"}
	stop := map[string]func(){}
	var list []Replica
	for _, name := range names {
		stop[name] = a.network.serve(a.T, name+":80", a.replica())
		list = append(list, Replica{ID: name, Address: name + ":80", Credits: 2})
	}
	set := func(list []Replica) {
		if err := a.gateway.SetReplicas(resnet, list); err != nil {
			a.Error(err)
		}
	}
	var drains sync.WaitGroup
	for ctx.Err() == nil {
		name := names[r.IntN(3)]
		pause := time.Duration(r.IntN(20)) * ms
		switch r.IntN(5) {
		case 0:
			set(nil)
			time.Sleep(2 * pause)
		case 4: // fails while requests are held or waiting, and restarts while requests are refused
			set(list[:r.IntN(2)])
			time.Sleep(pause)
			a.gateway.SetBackOff(resnet, time.Now().Add(pause), "a: exited with code 1")
			set(nil)
			a.gateway.SetBackOff(resnet, time.Now().Add(pause), "a: exited with code 1")
			time.Sleep(pause)
			a.gateway.SetBackOff(resnet, time.Time{}, "")
		case 1:
			set(list[:1+r.IntN(2)])
			time.Sleep(pause)
		case 2:
			drains.Go(func() { _ = a.gateway.Drain(ctx, resnet, name) })
			time.Sleep(pause)
			set(nil) // ends the drain
		case 3: // dies with all its requests
			stop[name]()
			time.Sleep(pause)
			stop[name] = a.network.serve(a.T, name+":80", a.replica())
		}
		set(list)
		time.Sleep(10 * pause)
	}
	drains.Wait()
}

// replica returns a server that behaves at random: it answers correctly, with an error, with a broken-off response, or too late.
func (a *account) replica() http.Handler {
	var n atomic.Uint64
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		how := rand.New(rand.NewPCG(3, n.Add(1)))
		wait := func(d time.Duration) {
			select {
			case <-time.After(d):
			case <-r.Context().Done():
			}
		}
		switch how.IntN(40) {
		case 0:
			panic(http.ErrAbortHandler)
		case 1: // half of an answer
			w.Header().Set("Content-Length", "100")
			fmt.Fprint(w, "half")
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		case 2: // of no known length, in pieces
			for range 3 {
				fmt.Fprint(w, "piece")
				w.(http.Flusher).Flush()
				wait(5 * ms)
			}
		case 3:
			wait(500 * ms)
		case 4:
			w.WriteHeader([]int{400, 429, 500, 503}[how.IntN(4)])
		case 5:
			fmt.Fprint(w, `{"outputs":[]}`) // not a valid response to a batch
		case 6: // not HTTP
			c, _, err := w.(http.Hijacker).Hijack()
			if err != nil {
				a.Error(err)
				return
			}
			_, _ = io.WriteString(c, []string{"HTTP/1.1 099 ?\r\nContent-Length: 0\r\n\r\n", "\x00\x00", "HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n"}[how.IntN(3)])
			c.Close()
		default:
			wait(time.Duration(how.IntN(15)) * ms)
			if strings.HasSuffix(r.URL.Path, "/infer") {
				(&model{}).ServeHTTP(w, r)
				return
			}
			echo(0).ServeHTTP(w, r)
		}
	})
}
