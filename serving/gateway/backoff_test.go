package gateway

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestBackOff: while a function without replicas starts none, its requests are refused at once, including those already waiting, with the
// reason and the remaining time. They count as load. Afterwards, requests wait again.
func TestBackOff(t *testing.T) {
	start(t, Function{SLO: time.Second}, func(w *world) {
		var wait sync.WaitGroup
		held := make([]answer, 2)
		for i := range held {
			wait.Go(func() { held[i] = w.ask(w.Context(), "input") })
		}
		time.Sleep(2 * time.Second)
		for len(w.gateway.Waiting()) > 0 {
			<-w.gateway.Waiting()
		}
		w.gateway.SetBackOff(resnet, time.Now().Add(7500*ms), "f-1: exited with code 3")
		check := func(name string, a answer, took time.Duration, retryAfter string) {
			w.Helper()
			if a.status != 503 || a.reason != reasonBackOff || a.took != took || a.header.Get("Retry-After") != retryAfter ||
				a.body != `{"error":"no replica serves the function: f-1: exited with code 3"}` {
				w.Errorf("%s: %+v", name, a)
			}
		}
		wait.Wait()
		check("held", held[0], 2*time.Second, "8")
		check("held", held[1], 2*time.Second, "8")
		check("new", w.ask(w.Context(), "input"), 0, "8")
		time.Sleep(3 * time.Second)
		check("later", w.ask(w.Context(), "input"), 0, "5")
		time.Sleep(3 * time.Second)
		check("soon", w.ask(w.Context(), "input"), 0, "2")
		if l := w.gateway.Load(resnet); l != (Load{Arrived: 5, Received: 5, Refused: 5}) || w.refusals(resnet, reasonBackOff) != 5 {
			w.Errorf("%+v, %v refusals", l, w.refusals(resnet, reasonBackOff))
		}
		if len(w.gateway.Waiting()) > 0 {
			w.Error("requests that are refused are said to wait")
		}

		w.gateway.SetBackOff(resnet, time.Time{}, "")
		var a answer
		wait.Go(func() { a = w.ask(w.Context(), "input") })
		time.Sleep(4 * time.Second)
		if len(w.gateway.Waiting()) != 1 {
			w.Error("nobody is told of a request that waits")
		}
		w.replicas(echo(0), 1, 0, "a")
		wait.Wait()
		if a.status != 200 || a.took != 4*time.Second {
			w.Errorf("after the back-off: %+v", a)
		}
		w.gateway.SetBackOff(resnet, time.Now().Add(time.Minute), "f-1: exited with code 3")
		if a := w.ask(w.Context(), "input"); a.status != 200 {
			w.Errorf("while there is a replica: %+v", a)
		}
		w.gateway.SetBackOff(FunctionName{"default", "unknown"}, time.Now(), "")
	})
}

// TestShortBackOff: requests that may wait for longer than a back-off lasts are answered after it, those that come and those that waited before: in the
// queue of a replica that has ended, or for the first one. Another back-off that lasts longer ends their wait.
func TestShortBackOff(t *testing.T) {
	const fail = "f-1: exited with code 3"
	for name, c := range map[string]struct {
		function Function
		timeout  string // the client's, in milliseconds
		backOffs []time.Duration
		status   int
		took     time.Duration
	}{
		"objective is longer":         {Function{SLO: 30 * time.Second}, "", []time.Duration{4 * time.Second}, 200, 4 * time.Second},
		"objective is as long":        {Function{SLO: 4 * time.Second}, "", []time.Duration{4 * time.Second}, 503, 0},
		"no objective":                {Function{}, "", []time.Duration{59 * time.Second}, 200, 59 * time.Second},
		"longer than a hold":          {Function{SLO: time.Hour}, "", []time.Duration{time.Minute}, 503, 0},
		"hold of a shorter time":      {Function{Hold: Hold{For: 3 * time.Second}}, "", []time.Duration{4 * time.Second}, 503, 0},
		"client waits":                {Function{SLO: time.Second}, "5000", []time.Duration{4 * time.Second}, 200, 4 * time.Second},
		"client does not":             {Function{SLO: 30 * time.Second}, "3000", []time.Duration{4 * time.Second}, 503, 0},
		"turns":                       {Function{SLO: 30 * time.Second, Hold: Hold{InTime: true}}, "", []time.Duration{4 * time.Second}, 200, 4 * time.Second},
		"fails again, still in time":  {Function{SLO: 30 * time.Second}, "", []time.Duration{4 * time.Second, 8 * time.Second}, 200, 12 * time.Second},
		"fails again, no longer":      {Function{SLO: 10 * time.Second}, "", []time.Duration{4 * time.Second, 8 * time.Second}, 503, 4 * time.Second},
		"is over, nobody has said so": {Function{SLO: time.Second}, "", []time.Duration{-time.Second, 500 * ms}, 200, 500 * ms},
	} {
		for _, first := range []bool{false, true} { // whether the request comes before the back-off
			t.Run(fmt.Sprintf("%s, first %v", name, first), func(t *testing.T) {
				start(t, c.function, func(w *world) {
					var wait sync.WaitGroup
					var a answer
					ask := func() {
						headers := []string{}
						if c.timeout != "" {
							headers = []string{"X-Envoy-Expected-Rq-Timeout-Ms", c.timeout}
						}
						wait.Go(func() { a = w.ask(w.Context(), "input", headers...) })
						synctest.Wait()
					}
					if first {
						ask()
					}
					for i, d := range c.backOffs {
						w.gateway.SetBackOff(resnet, time.Now().Add(d), fail)
						if i == 0 && !first {
							ask()
						}
						time.Sleep(d)
						w.gateway.SetBackOff(resnet, time.Time{}, "")
					}
					w.replicas(echo(0), 1, 0, "a")
					wait.Wait()
					if a.status != c.status || a.took != c.took || a.status == 503 && a.reason != reasonBackOff {
						w.Errorf("%+v, want %d after %v", a, c.status, c.took)
					}
					if l := w.gateway.Load(resnet); l.Waiting != 0 || l.Arrived != 1 {
						w.Errorf("%+v", l)
					}
				})
			})
		}
	}
}

// TestBackOffWithQueue: requests waiting for the last replica are refused when that replica is gone.
func TestBackOffWithQueue(t *testing.T) {
	start(t, Function{}, func(w *world) {
		w.replicas(echo(10*time.Second), 1, 0, "a")
		answers := make([]answer, 2)
		var wait sync.WaitGroup
		for i := range answers {
			wait.Go(func() { answers[i] = w.ask(w.Context(), "input") })
			synctest.Wait()
		}
		if err := w.gateway.SetReplicas(resnet, nil); err != nil {
			w.Fatal(err)
		}
		w.gateway.SetBackOff(resnet, time.Now().Add(time.Minute), "f-1: exited with code 3")
		wait.Wait()
		if answers[0].status != 200 || answers[1].status != 503 || answers[1].took != 0 || answers[1].header.Get("Retry-After") != "60" {
			w.Errorf("%+v", answers)
		}
	})
}

// TestShortBackOffWithQueue: requests waiting for the last replica when it ends wait for the next one if that will come early enough.
func TestShortBackOffWithQueue(t *testing.T) {
	start(t, Function{}, func(w *world) {
		w.replicas(echo(10*time.Second), 1, 0, "a")
		answers := make([]answer, 3)
		var wait sync.WaitGroup
		for i := range answers {
			headers := []string{}
			if i == 2 {
				headers = []string{"X-Envoy-Expected-Rq-Timeout-Ms", "40000"}
			}
			wait.Go(func() { answers[i] = w.ask(w.Context(), "input", headers...) })
			synctest.Wait()
		}
		if err := w.gateway.SetReplicas(resnet, nil); err != nil {
			w.Fatal(err)
		}
		w.gateway.SetBackOff(resnet, time.Now().Add(45*time.Second), "f-1: exited with code 3")
		time.Sleep(45 * time.Second)
		w.gateway.SetBackOff(resnet, time.Time{}, "")
		w.replicas(echo(0), 1, 0, "b")
		wait.Wait()
		if answers[0].status != 200 || answers[1].status != 200 || answers[1].took != 45*time.Second || answers[2].status != 503 || answers[2].took != 0 {
			w.Errorf("%+v", answers)
		}
	})
}

// TestBackOffOfBatch: a request that was left out of a batch does not wait for a function that is backing off.
func TestBackOffOfBatch(t *testing.T) {
	start(t, Function{}, func(w *world) {
		w.replicas(echo(0), 1, 0, "a")
		f := w.gateway.function(resnet)
		it, why := f.admit(nil, demands{}, time.Time{}, 0)
		if why.status != 0 {
			w.Fatal(why)
		}
		<-it.turn
		if err := w.gateway.SetReplicas(resnet, nil); err != nil {
			w.Fatal(err)
		}
		w.gateway.SetBackOff(resnet, time.Now().Add(time.Minute), "f-1: exited with code 3")
		f.putBack([]*item{it})
		select {
		case got := <-it.turn:
			if got.refusal.reason != reasonBackOff {
				w.Errorf("%+v", got)
			}
		default:
			w.Error("it waits")
		}
		if l := w.gateway.Load(resnet); l != (Load{Arrived: 1, Received: 1, Refused: 1}) {
			w.Errorf("%+v", l)
		}
	})
}

// TestBackOffReason: what a replica has printed reaches clients truncated, and only as text within a JSON string.
func TestBackOffReason(t *testing.T) {
	for name, why := range map[string]string{
		"long": strings.Repeat("é", 5000), "quotes": `"}, {"error": "\`, "control": "a\r\nX-Evil: 1\r\n\r\n\x1b[2J\x00", "markup": "<script>alert(1)</script>&", "bytes": "\xff\xfe",
	} {
		t.Run(name, func(t *testing.T) {
			start(t, Function{}, func(w *world) {
				w.gateway.SetBackOff(resnet, time.Now().Add(time.Minute), why)
				a := w.ask(w.Context(), "input")
				var body map[string]string
				if err := json.Unmarshal([]byte(a.body), &body); err != nil || len(body) != 1 || a.header.Get("Content-Type") != "application/json" || a.status != http.StatusServiceUnavailable {
					w.Errorf("%+v: %v", a, err)
				}
				if n := len([]rune(body["error"])); n > maxWhy+50 || len(a.body) > 8*maxWhy {
					w.Errorf("%d characters, %d bytes", n, len(a.body))
				}
				if strings.ContainsAny(a.body, "<>\r\n\x1b\x00") || strings.Contains(a.body, "\xff") || len(a.header["X-Evil"]) > 0 {
					w.Errorf("%q, %v", a.body, a.header)
				}
			})
		})
	}
}
