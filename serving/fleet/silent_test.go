package fleet

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/gshare-dev/gshare/serving/gateway"
)

// TestSilentClients opens 3,000 requests that send only one of ten announced bytes. They start no replica, neither while the gateway waits
// for the rest nor when the clients have disconnected. The control is one complete request.
func TestSilentClients(t *testing.T) {
	const clients = 3000
	start(t, "requestsPerSecond: 10, window: 4s, keepShared: 6s", steady, func(w *world) {
		var wait sync.WaitGroup
		var bodies []*io.PipeWriter
		for range clients {
			body, sent := io.Pipe()
			bodies = append(bodies, sent)
			r := httptest.NewRequest(http.MethodPost, "http://f/", body)
			r.ContentLength = 10
			r.Header.Set("Work", "0s")
			wait.Go(func() { w.gateway.ServeHTTP(httptest.NewRecorder(), r) })
			if _, err := io.WriteString(sent, "x"); err != nil {
				w.Fatal(err)
			}
		}
		sleep(recent * period)
		check := func(gone uint64) {
			w.Helper()
			if l := w.gateway.Load(name); l != (gateway.Load{Arrived: gone, Gone: gone}) {
				w.Errorf("%+v, want %d arrived and gone", l, gone)
			}
			if s := w.status(); len(w.creations()) > 0 || s.Rate != 0 {
				w.Errorf("%d replicas were started at %v requests a second", len(w.creations()), s.Rate)
			}
		}
		check(0)
		for _, sent := range bodies {
			_ = sent.CloseWithError(io.ErrUnexpectedEOF) // as net/http reports the end of a connection
		}
		wait.Wait()
		sleep(recent * period)
		check(clients)

		r := httptest.NewRequest(http.MethodPost, "http://f/", strings.NewReader("0123456789"))
		r.Header.Set("Work", "0s")
		answer := httptest.NewRecorder()
		w.gateway.ServeHTTP(answer, r)
		if answer.Code != http.StatusOK || len(w.creations()) != 1 {
			w.Errorf("a request that came whole: status %d, %d replicas", answer.Code, len(w.creations()))
		}
	})
}
