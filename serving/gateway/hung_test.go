package gateway

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// hangs does not respond until its client goes away.
var hangs = http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	<-r.Context().Done()
})

// TestReplicaThatHangs checks that a request without a client's deadline is given up if its replica has not begun to respond within Timeout,
// that the replica is avoided as after other failures, and that its credit is returned.
func TestReplicaThatHangs(t *testing.T) {
	const timeout = time.Minute
	for name, c := range map[string]struct {
		function Function
		path     string
		requests int
	}{
		"one by one":        {Function{Timeout: timeout}, "/predict", 1},
		"with an objective": {Function{Timeout: timeout, SLO: time.Second}, "/predict", 1},
		"stream of tokens":  {Function{Timeout: timeout, Protocol: OpenAI}, "/v1/completions", 1},
		"batch":             {Function{Timeout: timeout, Protocol: OIP, MaxBatch: 8}, inferPath, 2},
	} {
		t.Run(name, func(t *testing.T) {
			start(t, c.function, func(w *world) {
				answers := make(chan answer)
				for i := range c.requests {
					go func() { answers <- w.ask(w.Context(), input("", float64(i)), "Path", c.path) }()
				}
				synctest.Wait() // they are held, and sent as a batch
				w.replicas(hangs, 1, 0, "a")
				for range c.requests {
					if a := <-answers; a.status != 504 || a.reason != reasonDeadline || a.took != timeout {
						w.Errorf("%+v", a)
					}
				}
				synctest.Wait()
				l := w.gateway.Load(resnet)
				if l.Failed != uint64(c.requests) || l.InFlight != 0 || l.Refused != 0 || w.avoided() != 1 {
					w.Errorf("%+v, %d replicas are avoided", l, w.avoided())
				}
				w.replicas(echo(0), 1, 0, "b")
				if a := w.ask(w.Context(), "next"); a.status != 200 || a.took != 0 {
					w.Errorf("the next one: %+v", a)
				}
			})
		})
	}
}

// TestLongAnswer checks that Timeout only applies to the beginning of a response, and that a client may ask for a longer wait.
func TestLongAnswer(t *testing.T) {
	start(t, Function{Timeout: time.Minute}, func(w *world) {
		w.replicas(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
			time.Sleep(time.Minute - time.Second)
			for range 10 {
				fmt.Fprint(rw, "x")
				rw.(http.Flusher).Flush()
				time.Sleep(time.Minute - time.Second)
			}
		}), 1, 0, "a")
		if a := w.ask(w.Context(), "input"); a.status != 200 || a.body != "xxxxxxxxxx" {
			w.Errorf("a stream: %+v", a)
		}
		w.replicas(echo(time.Hour), 1, 0, "b")
		if a := w.ask(w.Context(), "input", timeoutHeaders[0], "4000000"); a.status != 200 || a.took != time.Hour {
			w.Errorf("a client that waits: %+v", a)
		}
	})
}

// TestGRPCReplicaThatHangs is TestReplicaThatHangs for gRPC calls. The replica is not avoided because of a stream, since the client may not
// have sent what the replica waits for.
func TestGRPCReplicaThatHangs(t *testing.T) {
	const timeout = time.Minute
	hung := &grpcModel{silent: true, took: func(rows int) time.Duration {
		if rows == 1 {
			return ms
		}
		return time.Hour
	}}
	for name, c := range map[string]struct {
		send    func(w *world, c *grpc.ClientConn) error
		avoided int
	}{
		"call": {func(w *world, c *grpc.ClientConn) error { return call(w.Context(), c, "hangs", 1, 2) }, 1},
		"batch": {func(w *world, c *grpc.ClientConn) error {
			ended := make(chan error)
			for range 2 {
				go func() { ended <- call(w.Context(), c, "hangs", 1) }()
			}
			<-ended
			return <-ended
		}, 1},
		"stream": {func(w *world, c *grpc.ClientConn) error {
			ctx, cancel := context.WithCancel(w.Context())
			defer cancel()
			s, err := c.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, streamMethod)
			if err != nil {
				return err
			}
			var sends sync.WaitGroup
			defer sends.Wait()
			sends.Go(func() {
				for s.SendMsg(inferRequest("silence", 1)) == nil {
					time.Sleep(time.Second)
				}
			})
			return s.RecvMsg(nil)
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			start(t, Function{Timeout: timeout, Protocol: OIP, MaxBatch: 8}, func(w *world) {
				w.grpcReplicas(hung, 1, 0, "a")
				connection := w.dial("resnet")
				if err := call(w.Context(), connection, "honest", 1); err != nil {
					w.Fatal(err)
				}
				if name == "batch" { // both wait for the credit, and are sent as a batch
					go func() { _ = call(w.Context(), connection, "first", 1) }()
					synctest.Wait()
				}
				err := c.send(w, connection)
				if status.Code(err) != codes.DeadlineExceeded {
					w.Error(err)
				}
				synctest.Wait()
				if l := w.gateway.Load(resnet); l.Failed == 0 || l.InFlight != 0 || w.avoided() != c.avoided {
					w.Errorf("%+v, %d replicas are avoided", l, w.avoided())
				}
			})
		})
	}
}
