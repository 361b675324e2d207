package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// dying counts how often each request was served, by a mark in its body, and ends at random points: before it has read the request, while it serves
// it, or in the answer.
type dying struct {
	mu     sync.Mutex
	random *rand.Rand
	batch  bool
	served map[string]int
	deaths int
}

// marks returns the marks of the requests in a body.
func (d *dying) marks(body []byte) (marks []string) {
	if !d.batch {
		return []string{string(body)}
	}
	var request struct {
		Inputs []struct{ Data []json.RawMessage }
	}
	_ = json.Unmarshal(body, &request)
	for _, in := range request.Inputs {
		for _, value := range in.Data {
			marks = append(marks, string(value))
		}
	}
	return marks
}

func (d *dying) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	d.mu.Lock()
	at := d.random.IntN(12)
	d.mu.Unlock()
	if at == 0 {
		d.die()
	}
	body, _ := io.ReadAll(r.Body)
	d.mu.Lock()
	for _, mark := range d.marks(body) {
		d.served[mark]++
	}
	d.mu.Unlock()
	time.Sleep(ms)
	if at == 1 {
		d.die()
	}
	if d.batch {
		r.Body = io.NopCloser(bytes.NewReader(body))
		(&model{took: constant(ms)}).ServeHTTP(rw, r)
		return
	}
	_, _ = rw.Write(body)
}

// die breaks the connection off without an answer.
func (d *dying) die() {
	d.mu.Lock()
	d.deaths++
	d.mu.Unlock()
	panic(http.ErrAbortHandler)
}

// idempotent returns the function with requests that may be served twice.
func idempotent(f Function) Function {
	f.Idempotent = true
	return f
}

// TestNoDuplicates sends requests to replicas that end at random points. No request is served twice unless it says that it may be, by its method or an
// Idempotency-Key, or its function says so. Those that may are nearly all answered.
func TestNoDuplicates(t *testing.T) {
	const requests = 600
	for name, c := range map[string]struct {
		function   Function
		method     string
		header     []string
		repeatable bool
	}{
		"POST":                       {Function{}, http.MethodPost, nil, false},
		"PUT":                        {Function{}, http.MethodPut, nil, false},
		"DELETE":                     {Function{}, http.MethodDelete, nil, false},
		"GET":                        {Function{}, http.MethodGet, nil, true},
		"OPTIONS":                    {Function{}, http.MethodOptions, nil, true},
		"POST with a key":            {Function{}, http.MethodPost, []string{"Idempotency-Key", "a"}, true},
		"POST to one that allows it": {Function{Idempotent: true}, http.MethodPost, nil, true},
		"batches":                    {batched, http.MethodPost, nil, false},
		"batches with keys":          {batched, http.MethodPost, []string{"Idempotency-Key", "a"}, true},
		"batches of one that allows": {idempotent(batched), http.MethodPost, nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			start(t, c.function, func(w *world) {
				d := &dying{random: rand.New(rand.NewPCG(1, uint64(len(name)))), batch: c.function.MaxBatch > 1, served: map[string]int{}}
				w.replicas(d, 4, 0, "a", "b")
				w.gateway.function(resnet).retries = requests // the bound of retries is not what is tested
				answered, failed := 0, 0
				var mu sync.Mutex
				var wait sync.WaitGroup
				for i := range requests {
					wait.Go(func() {
						headers := append([]string{"Method", c.method}, c.header...)
						var a answer
						if d.batch {
							a = w.infer(w.Context(), input("", float64(i)), c.header...)
						} else {
							a = w.ask(w.Context(), fmt.Sprint(i), headers...)
						}
						mu.Lock()
						defer mu.Unlock()
						switch {
						case a.status == 200:
							answered++
						case a.status != 502 || a.reason != reasonReplica || !c.repeatable && !strings.Contains(a.body, "not sent again"):
							w.Errorf("%+v", a)
						default:
							failed++
						}
					})
					time.Sleep(ms)
					if i%8 == 7 {
						time.Sleep(20 * ms)
					}
				}
				wait.Wait()
				twice := 0
				for _, n := range d.served {
					if n > 1 {
						twice++
					}
				}
				if d.deaths < 10 || answered+failed != requests {
					w.Errorf("%d deaths, %d of %d answered, %d failed", d.deaths, answered, requests, failed)
				}
				if c.repeatable != (twice > 0) || c.repeatable && failed > requests/10 {
					w.Errorf("%d served twice, %d failed, repeatable %v", twice, failed, c.repeatable)
				}
			})
		})
	}
}

// mayBeServedTwice is what a function and a client say, and whether a request may then be served twice.
var mayBeServedTwice = map[string]struct {
	function Function
	key      bool // the client sends an Idempotency-Key
	want     bool
}{
	"neither":      {},
	"a key":        {key: true, want: true},
	"the function": {function: Function{Idempotent: true}, want: true},
}

// TestNoDuplicatesOfGRPC kills the connection of a replica while it has a call.
func TestNoDuplicatesOfGRPC(t *testing.T) {
	for name, c := range mayBeServedTwice {
		t.Run(name, func(t *testing.T) {
			start(t, c.function, func(w *world) {
				m := &grpcModel{}
				w.grpcReplicas(m, 1, 0, "a")
				connection := w.dial("resnet")
				if err := call(w.Context(), connection, "1", 1); err != nil { // now it is known that the replica speaks gRPC
					w.Fatal(err)
				}
				var served atomic.Int32
				w.network.run(w.T, "b:80", &http.Server{Protocols: w.server.Protocols, Handler: http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
					if served.Add(1) > 1 {
						rw.Header().Set("Content-Type", grpcType)
						rw.Header().Set(grpcStatus, "5")
						return
					}
					_, _ = io.Copy(io.Discard, r.Body)
					panic(http.ErrAbortHandler)
				})})
				if err := w.gateway.SetReplicas(resnet, []Replica{{ID: "b", Address: "b:80"}}); err != nil {
					w.Fatal(err)
				}
				ctx := w.Context()
				if c.key {
					ctx = metadata.AppendToOutgoingContext(ctx, "idempotency-key", "a")
				}
				want, sent := codes.Unavailable, int32(1)
				if c.want {
					want, sent = codes.NotFound, 2
				}
				if err := call(ctx, connection, "2", 1); status.Code(err) != want || served.Load() != sent {
					w.Errorf("served %d times, want %d: %v", served.Load(), sent, err)
				}
			})
		})
	}
}

// TestNoDuplicatesOfRelays kills the gateway to which another one has forwarded a request while a replica has it.
func TestNoDuplicatesOfRelays(t *testing.T) {
	for name, c := range mayBeServedTwice {
		t.Run(name, func(t *testing.T) {
			startCluster(t, c.function, 2, true, func(cl *cluster) {
				var served atomic.Int32
				cl.replicas(func(string) http.Handler {
					return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
						served.Add(1)
						echo(100*ms).ServeHTTP(rw, r)
					})
				}, "a", "b")
				time.AfterFunc(50*ms, cl.members[0].die)
				var headers []string
				if c.key {
					headers = []string{"Idempotency-Key", "a"}
				}
				a := cl.ask(context.Background(), cl.members[1], strings.NewReader("input"), headers...)
				want, sent := 502, int32(1)
				if c.want {
					want, sent = 200, 2
				}
				if a.status != want || served.Load() != sent || !c.want && (a.reason != reasonGateway || !strings.Contains(a.body, "not sent again")) {
					cl.Errorf("served %d times: %+v", served.Load(), a)
				}
			})
		})
	}
}
