package gateway

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	dto "github.com/prometheus/client_model/go"
)

// refusals returns how many refusals of a function with a reason the metrics have.
func (w *world) refusals(f FunctionName, reason string) float64 {
	w.Helper()
	families, err := w.registry.Gather()
	if err != nil {
		w.Fatal(err)
	}
	for _, family := range families {
		for _, m := range family.Metric {
			if family.GetName() == "gshare_gateway_refusals_total" && label(m, "namespace") == f.Namespace && label(m, "function") == f.Name && label(m, "reason") == reason {
				return m.Counter.GetValue()
			}
		}
	}
	return 0
}

func label(m *dto.Metric, name string) string {
	for _, l := range m.Label {
		if l.GetName() == name {
			return l.GetValue()
		}
	}
	return ""
}

// TestLoadIsWhatCameWhole checks what counts as load and what does not, and that all of it is counted and nothing twice.
func TestLoadIsWhatCameWhole(t *testing.T) {
	const post = "POST / HTTP/1.1\r\nHost: resnet\r\n"
	const infer = "POST " + inferPath + " HTTP/1.1\r\nHost: resnet\r\n"
	invalid, gone := Load{Arrived: 1, Refused: 1, Invalid: 1}, Load{Arrived: 1, Gone: 1}
	for name, c := range map[string]struct {
		text   string
		leaves bool // does not wait for the answer
		want   Load
		reason string
	}{
		"one byte of ten":          {post + "Content-Length: 10\r\n\r\nx", false, invalid, reasonBadRequest},
		"one byte, then it leaves": {post + "Content-Length: 10\r\n\r\nx", true, gone, ""},
		"no byte, then it leaves":  {post + "Content-Length: 10\r\n\r\n", true, gone, ""},
		"leaves within a chunk":    {post + "Transfer-Encoding: chunked\r\n\r\n5\r\nab", true, gone, ""},
		"leaves between chunks":    {post + "Transfer-Encoding: chunked\r\n\r\n2\r\nab\r\n", true, gone, ""},
		"chunks that never end":    {post + "Transfer-Encoding: chunked\r\n\r\n2\r\nab\r\n", false, invalid, reasonBadRequest},
		"no chunks":                {post + "Transfer-Encoding: chunked\r\n\r\nzz\r\n", false, invalid, reasonBadRequest},
		"too large":                {post + "Content-Length: 1025\r\n\r\nx", false, invalid, reasonTooLarge},
		"deadline in the past":     {post + timeoutHeaders[0] + ": -5\r\n\r\n", false, invalid, reasonBadRequest},
		"not JSON":                 {infer + "Content-Length: 3\r\n\r\nxyz", false, invalid, reasonBadRequest},
		"whole, then it leaves":    {post + "Content-Length: 3\r\n\r\nxyz", true, Load{Arrived: 1, Received: 1, Gone: 1}, ""},
		"without a body":           {post + "\r\n", true, Load{Arrived: 1, Received: 1, Gone: 1}, ""},
		"whole, not served":        {post + "Content-Length: 3\r\n\r\nxyz", false, Load{Arrived: 1, Received: 1, Refused: 1}, reasonHoldExpired},
		"no room, whole":           {post + "Content-Length: 1000\r\n\r\n" + strings.Repeat("x", 1000), false, Load{Arrived: 1, Received: 1, Refused: 1}, reasonQueueFull},
		"no room, one byte":        {post + "Content-Length: 1000\r\n\r\nx", false, invalid, reasonBadRequest},
	} {
		t.Run(name, func(t *testing.T) {
			start(t, Function{Protocol: OIP, MaxBatch: 2, MaxBody: 1024, MaxBytes: 1024}, func(w *world) {
				f := w.gateway.function(resnet)
				if strings.HasPrefix(name, "no room") {
					f.bodies.bytes = 100
				}
				connection, err := w.network.dial(w.Context(), "", "gateway:80")
				if err != nil {
					w.Fatal(err)
				}
				if _, err := io.WriteString(connection, c.text); err != nil {
					w.Fatal(err)
				}
				synctest.Wait()
				if l := w.gateway.Load(resnet); l.Received != c.want.Received {
					w.Errorf("once it is sent: %+v", l)
				}
				if !c.leaves {
					_, _ = io.ReadFull(connection, make([]byte, 12))
				}
				connection.Close()
				synctest.Wait()
				if l := w.gateway.Load(resnet); l != c.want {
					w.Errorf("%+v, want %+v", l, c.want)
				}
				if c.reason != "" && w.refusals(resnet, c.reason) != 1 {
					w.Errorf("the metrics have no refusal with the reason %s", c.reason)
				}
				if woken := len(w.gateway.Waiting()); (woken > 0) != (c.want.Received > 0 && c.reason != reasonQueueFull) {
					w.Errorf("the autoscaler was woken %d times", woken)
				}
				time.Sleep(time.Second) // the server closes connections a little later
			})
		})
	}
}

// TestRefusalsWithoutFunction checks that a request that names no function is counted, too.
func TestRefusalsWithoutFunction(t *testing.T) {
	start(t, Function{}, func(w *world) {
		w.ask(w.Context(), "input", "Host", "bert")
		if n := w.refusals(FunctionName{}, reasonUnknown); n != 1 {
			w.Errorf("%v refusals are counted", n)
		}
		if l := w.gateway.Load(resnet); l != (Load{}) {
			w.Errorf("another function has %+v", l)
		}
	})
}

// TestTurnComesAsClientLeaves checks that a request that ends in the moment in which its client leaves is counted once.
func TestTurnComesAsClientLeaves(t *testing.T) {
	for name, c := range map[string]struct {
		end  func(w *world, f *function) // ends the wait of all that are held
		want Load                        // of two requests
	}{
		"refused": {func(_ *world, f *function) {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.refuseAll(newRefusal(causeUnknown, ""), func(*item) bool { return true })
		}, Load{Arrived: 2, Received: 2, Refused: 2}},
		"answered": {func(w *world, _ *function) { w.replicas(&model{}, 1, 0, "a") }, Load{Arrived: 2, Received: 2, Answered: 2}},
		"failed": {func(w *world, f *function) {
			f.retries = 0
			w.replicas(&model{fails: func([]float64) int { return 503 }}, 1, 0, "a") // of the replica, not of one of the requests
		}, Load{Arrived: 2, Received: 2, Failed: 2}},
	} {
		t.Run(name, func(t *testing.T) {
			for range 20 { // whether wait sees the turn or the client first is left to chance
				start(t, batched, func(w *world) {
					f := w.gateway.function(resnet)
					var items []*item
					for range 2 {
						e := &exchange{function: f, request: httptest.NewRequest(http.MethodPost, "http://resnet"+inferPath, nil), body: []byte(input("", 1))}
						p, _, why := e.locate(8)
						if why.status != 0 {
							w.Fatal(why)
						}
						it, why := f.admit(p, demands{}, time.Time{}, 0)
						if why.status != 0 {
							w.Fatal(why)
						}
						items = append(items, it)
					}
					c.end(w, f)
					synctest.Wait()
					gone, cancel := context.WithCancel(w.Context())
					cancel()
					for _, it := range items {
						e := &exchange{gateway: w.gateway, function: f, request: httptest.NewRequest(http.MethodPost, "http://resnet/", nil).WithContext(gone), writer: httptest.NewRecorder()}
						got, ok := e.wait(gone, it)
						if !ok {
							w.Error("its turn is lost")
						} else if got.answer != nil {
							got.answer.room.release() // as pass does
						}
					}
					got := f.load()
					got.InTime, got.Replicas, got.P50, got.P99 = 0, 0, 0, 0
					if got != c.want {
						w.Errorf("%+v, want %+v", got, c.want)
					}
				})
			}
		})
	}
}
