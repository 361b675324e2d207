package gateway

import (
	"net/http"
	"sync"
	"testing"
	"time"
)

// TestInTurn has a function get its replica in turn with others. Requests wait for it until their deadlines, are answered when it comes back, and the
// first of them is known.
func TestInTurn(t *testing.T) {
	inTurn := Function{SLO: time.Second, Hold: Hold{InTime: true, For: time.Millisecond}}
	start(t, inTurn, func(w *world) {
		if n, due := w.gateway.Head(resnet); n != 0 || !due.IsZero() {
			w.Errorf("%d wait until %v", n, due)
		}
		w.network.serve(w.T, "a:80", http.HandlerFunc(func(http.ResponseWriter, *http.Request) { time.Sleep(100 * ms) }))
		begin := time.Now()
		var wait sync.WaitGroup
		statuses := make([]int, 3)
		for i := range statuses {
			wait.Go(func() {
				time.Sleep(time.Duration(i) * 100 * ms)
				statuses[i] = w.ask(w.Context(), "").status
			})
		}
		time.Sleep(250 * ms)
		if n, due := w.gateway.Head(resnet); n != 3 || !due.Equal(begin.Add(time.Second)) {
			w.Errorf("%d wait until %v", n, due.Sub(begin))
		}
		w.setReplicas(resnet, "a")
		time.Sleep(50 * ms)
		<-w.gateway.StartDrain(resnet, "a") // one is answered, two wait again
		w.setReplicas(resnet)
		if n, due := w.gateway.Head(resnet); n != 2 || !due.Equal(begin.Add(1100*ms)) {
			w.Errorf("then %d wait until %v", n, due.Sub(begin))
		}
		time.Sleep(500 * ms)
		w.setReplicas(resnet, "a")
		time.Sleep(50 * ms)
		<-w.gateway.StartDrain(resnet, "a")
		w.setReplicas(resnet)
		wait.Wait()
		if got := time.Since(begin); statuses[0] != 200 || statuses[1] != 200 || statuses[2] != http.StatusGatewayTimeout || got != 1200*ms {
			w.Errorf("%v after %v", statuses, got)
		}
		if l := w.gateway.Load(resnet); l.InTime != 2 || l.Refused != 1 {
			w.Errorf("%+v", l)
		}
	})
}

// TestInTurnIsInTime: a request that a replica has had for too long to answer it in time, and that waits again, for the function's next turn or for the
// replica, which has failed, is refused at its deadline all the same.
func TestInTurnIsInTime(t *testing.T) {
	for name, leaves := range map[string]bool{"next turn": true, "replica": false} {
		t.Run(name, func(t *testing.T) {
			start(t, Function{SLO: time.Second, Hold: Hold{InTime: true}, Idempotent: true}, func(w *world) {
				var stop func()
				stop = w.network.serve(w.T, "a:80", http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
					time.Sleep(50 * ms)
					stop() // the request is sent again, and finds nobody
					panic(http.ErrAbortHandler)
				}))
				begin := time.Now()
				var wait sync.WaitGroup
				wait.Go(func() {
					if got, took := w.ask(w.Context(), ""), time.Since(begin); got.status != http.StatusGatewayTimeout || took != time.Second {
						w.Errorf("status %d after %v", got.status, took)
					}
				})
				time.Sleep(900 * ms)
				if err := w.gateway.SetReplicas(resnet, []Replica{{ID: "a", Address: "a:80", Latency: 600 * ms}}); err != nil { // more than is left, but nobody else needs it
					w.Fatal(err)
				}
				time.Sleep(20 * ms)
				if leaves {
					w.setReplicas(resnet)
				}
				wait.Wait()
			})
		})
	}
}

// TestInTurnWithHost: requests of a function in turn keep their deadlines when they come to a host that has its turn, and when their deadlines were put off
// there since nobody else needed it, they are refused when they are due wherever they wait then.
func TestInTurnWithHost(t *testing.T) {
	inTurn := Function{SLO: time.Second, Hold: Hold{InTime: true}, Idempotent: true}
	for name, test := range map[string]struct {
		host    bool          // the request comes while there is a host
		latency time.Duration // of the host's replica
		busy    bool          // with another request
	}{
		"comes to the host":        {latency: 10 * ms, busy: true},
		"comes back from the host": {host: true, latency: 600 * ms},
	} {
		t.Run(name, func(t *testing.T) {
			start(t, inTurn, func(w *world) {
				var stop func()
				stop = w.network.serve(w.T, "a:80", http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
					if test.busy {
						time.Sleep(5 * time.Second)
						return
					}
					time.Sleep(50 * ms)
					stop() // as above
					panic(http.ErrAbortHandler)
				}))
				guest := inTurn
				guest.FunctionName = search
				if err := w.gateway.SetFunction(guest); err != nil {
					w.Fatal(err)
				}
				if test.host {
					w.host(resnet)
				}
				var wait sync.WaitGroup
				begin := time.Now()
				wait.Go(func() {
					if got, took := w.ask(w.Context(), "", "Host", "search"), time.Since(begin); got.status != http.StatusGatewayTimeout || took > time.Second {
						w.Errorf("status %d after %v, want 504 within 1 s", got.status, took)
					}
				})
				time.Sleep(500 * ms)
				if err := w.gateway.SetReplicas(resnet, []Replica{{ID: "a", Address: "a:80", Latency: test.latency}}); err != nil {
					w.Fatal(err)
				}
				if test.busy {
					wait.Go(func() { w.ask(w.Context(), "") })
					time.Sleep(10 * ms)
					w.host(resnet)
				} else {
					time.Sleep(100 * ms) // the replica has failed, and is avoided
					w.gateway.DropHost(search)
				}
				wait.Wait()
			})
		})
	}
}
