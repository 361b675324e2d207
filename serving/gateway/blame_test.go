package gateway

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"
)

// breaksOff answers requests, and breaks off with those whose body says so: "close" without an answer, anything else in bytes that are no answer.
var breaksOff = http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	if bytes.HasPrefix(body, []byte("good")) {
		_, _ = rw.Write(body)
		return
	}
	c, _, err := http.NewResponseController(rw).Hijack()
	if err != nil {
		panic(err)
	}
	if string(body) != "close" {
		_, _ = c.Write(body)
		time.Sleep(ms)
	}
	c.Close()
})

// TestOnlyReplicaIsNotBlamed checks that requests with which a replica breaks off do not keep it from others if no other replica could take those,
// however short their objective is, and that a second replica gets them if there is one.
func TestOnlyReplicaIsNotBlamed(t *testing.T) {
	for name, bad := range map[string]string{
		"closes":           "close",
		"switches":         "HTTP/1.1 101 Switching Protocols\r\nUpgrade: foo\r\nConnection: Upgrade\r\n\r\n",
		"malformed":        "no HTTP\r\n\r\n",
		"malformed status": "HTTP/1.1 9 Odd\r\nContent-Length: 0\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			start(t, Function{SLO: 50 * ms}, func(w *world) {
				w.replicas(breaksOff, 4, 0, "a")
				var bads sync.WaitGroup
				for i := range 200 {
					bads.Go(func() {
						if a := w.ask(w.Context(), bad); a.status != 502 || a.reason != reasonReplica {
							w.Errorf("a bad one: %+v", a)
						}
					})
					time.Sleep(5 * ms)
					if a := w.ask(w.Context(), "good"); a.status != 200 || a.took > 10*ms {
						w.Errorf("after %d bad ones: %+v", i+1, a)
						break
					}
				}
				bads.Wait()
			})
		})
	}
}

// TestErrorsOfServer: a replica that answers 500 to all requests, as vLLM does when its engine has died, has answered them. So the only one is never kept
// from requests as long as it is ready, and whether it gets any beside another one is for its readiness to say.
func TestErrorsOfServer(t *testing.T) {
	for name, protocol := range map[string]Protocol{"HTTP": HTTP, "OpenAI": OpenAI} {
		t.Run(name, func(t *testing.T) {
			start(t, Function{Protocol: protocol, SLO: 50 * ms}, func(w *world) {
				dead, served := map[string]bool{}, map[string]int{}
				var list []Replica
				for _, id := range []string{"a", "b"} {
					w.network.serve(w.T, id+":80", http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
						if served[id]++; dead[id] {
							rw.WriteHeader(500)
						}
					}))
					list = append(list, Replica{ID: id, Address: id + ":80", Credits: 1})
				}
				ready := func(list ...Replica) {
					if err := w.gateway.SetReplicas(resnet, list); err != nil {
						w.Fatal(err)
					}
				}
				ask := func(n, status int) {
					w.Helper()
					for range n {
						if a := w.ask(w.Context(), "x"); a.status != status || a.took > 0 {
							w.Fatalf("%+v, want %d at once", a, status)
						}
					}
				}
				ready(list[0])
				dead["a"] = true
				ask(200, 500)
				dead["a"] = false
				ask(1, 200)

				dead["a"] = true
				ready(list...)
				ready(list[1])
				clear(served)
				ask(200, 200)
				if served["a"] > 0 {
					w.Errorf("%v: a gets requests that is not ready", served)
				}
				dead["a"] = false
				ready(list...)
				ask(200, 200)
				if served["a"] == 0 {
					w.Errorf("%v: a gets no requests although it is ready again", served)
				}
			})
		})
	}
}

// TestUnreachableReplica checks that a replica that accepts no connections is avoided even if it is the only one, and that requests with which it ended
// are answered once it is back.
func TestUnreachableReplica(t *testing.T) {
	start(t, Function{Idempotent: true}, func(w *world) {
		var stop func()
		died := false
		serve := func() {
			stop = w.network.serve(w.T, "a:80", http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
				if !died {
					died = true
					go stop()
					time.Sleep(10 * ms)
					return
				}
				breaksOff(rw, r)
			}))
		}
		serve()
		if err := w.gateway.SetReplicas(resnet, []Replica{{ID: "a", Address: "a:80", Credits: 4}}); err != nil {
			w.Fatal(err)
		}
		begin := time.Now()
		time.AfterFunc(150*ms, serve)
		if a := w.ask(w.Context(), "good"); a.status != 200 {
			w.Errorf("%+v", a)
		}
		if took := time.Since(begin); took < 150*ms || took > 500*ms {
			w.Errorf("answered after %v", took)
		}
		time.Sleep(time.Second) // until there is the second server, also if the answer came too early
	})
}

// TestUnreachable checks which errors mean that nothing was sent, with the errors of the transports.
func TestUnreachable(t *testing.T) {
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	breaks := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
	defer breaks.Close()
	breaks.Config.ErrorLog = nil
	for name, transport := range map[string]http.RoundTripper{"HTTP": New(Config{}).upstream, "gRPC": New(Config{}).upstreamGRPC} {
		for address, want := range map[string]bool{closed.Addr().String(): true, breaks.Listener.Addr().String(): false} {
			r, _ := http.NewRequest(http.MethodPost, "http://"+address, http.NoBody)
			response, err := transport.RoundTrip(r)
			if err == nil {
				response.Body.Close()
			}
			if err == nil || isUnreachable(err) != want {
				t.Errorf("%s: %v: unreachable %v, want %v", name, err, !want, want)
			}
		}
	}
}
