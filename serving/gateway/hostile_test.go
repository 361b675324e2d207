package gateway

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// raw sends text over a connection of its own, and returns the first bytes of the response.
func (w *world) raw(text string, limit int64) answer {
	c, err := w.network.dial(w.Context(), "", "gateway:80")
	if err != nil {
		return answer{err: err}
	}
	defer c.Close()
	go io.WriteString(c, text)
	begin := time.Now()
	got, err := io.ReadAll(io.LimitReader(c, limit))
	return answer{body: string(got), err: err, took: time.Since(begin)}
}

// TestHostileRequests sends what no honest client sends. Each request is answered or cut off, none reaches a replica, and other clients are
// served.
func TestHostileRequests(t *testing.T) {
	start(t, Function{MaxBody: 1024}, func(w *world) {
		var served atomic.Int32
		w.replicas(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			served.Add(1)
		}), 1, 0, "a")
		const post = "POST / HTTP/1.1\r\nHost: resnet\r\n"
		for name, c := range map[string]struct {
			text, want string
			after      time.Duration
		}{
			"header that does not end":   {post + "X-A: b\r\n", "", headerTimeout},
			"many headers":               {post + strings.Repeat("X-A: "+strings.Repeat("x", 100)+"\r\n", 1000), "HTTP/1.1 431", 0},
			"one long header":            {post + "X-A: " + strings.Repeat("x", 100<<10), "HTTP/1.1 431", 0},
			"two lengths":                {post + "Content-Length: 1\r\nContent-Length: 2\r\n\r\nxx", "HTTP/1.1 400", 0},
			"negative length":            {post + "Content-Length: -1\r\n\r\n", "HTTP/1.1 400", 0},
			"length beyond 64 bits":      {post + "Content-Length: 99999999999999999999\r\n\r\n", "HTTP/1.1 400", 0},
			"length far too large":       {post + "Content-Length: 9000000000000000000\r\n\r\nx", "HTTP/1.1 413", 0},
			"unknown transfer encoding":  {post + "Transfer-Encoding: gzip\r\n\r\n", "HTTP/1.1 501", 0},
			"chunks of enormous size":    {post + "Transfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n", "HTTP/1.1 408", bodyTimeout},
			"two hosts":                  {"GET / HTTP/1.1\r\nHost: resnet\r\nHost: bert\r\n\r\n", "HTTP/1.1 400", 0},
			"no host":                    {"GET / HTTP/1.1\r\n\r\n", "HTTP/1.1 400", 0},
			"header with a line break":   {post + "X-A: b\rContent-Length: 5\r\n\r\n", "HTTP/1.1 400", 0},
			"deadline in the past":       {post + timeoutHeaders[0] + ": -5\r\nContent-Length: 1\r\n\r\nx", "HTTP/1.1 400", 0},
			"deadline at once":           {post + timeoutHeaders[0] + ": 0\r\nContent-Length: 1\r\n\r\nx", "HTTP/1.1 400", 0},
			"unknown function with body": {"POST / HTTP/1.1\r\nHost: other\r\nContent-Length: 9000000000\r\n\r\nx", "HTTP/1.1 404", 0},
			"body that does not come":    {"POST / HTTP/1.1\r\nHost: other\r\nContent-Length: 9\r\n\r\nx", "HTTP/1.1 404", bodyTimeout},
			"host of 60 KB":              {"GET / HTTP/1.1\r\nHost: " + strings.Repeat("a.", 30<<10) + "\r\n\r\n", "HTTP/1.1 404", 0},
		} {
			limit := int64(len(c.want))
			if limit == 0 {
				limit = 100
			}
			if a := w.raw(c.text, limit); a.body != c.want || a.took != c.after {
				w.Errorf("%s: %q after %v, want %q after %v", name, a.body, a.took, c.want, c.after)
			}
		}
		if served.Load() != 0 {
			w.Errorf("%d of them reached the replica", served.Load())
		}
		if a := w.ask(w.Context(), "honest"); a.status != 200 {
			w.Errorf("an honest request: %+v", a)
		}
		if f := w.gateway.function(resnet); f.bodies.bytes != 0 {
			w.Errorf("%d bytes are never released", f.bodies.bytes)
		}
		time.Sleep(time.Second) // the server closes connections slightly later
	})
}

// TestClientThatDoesNotRead checks that if a client does not read its response, the credit is returned after a while and the replica does not
// count as failed. The control is a client that reads slowly.
func TestClientThatDoesNotRead(t *testing.T) {
	for name, length := range map[string]string{"streamed": "", "of known length": "Content-Length"} {
		t.Run(name, func(t *testing.T) {
			start(t, Function{}, func(w *world) {
				const size = 1 << 20
				w.replicas(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
					if length != "" {
						rw.Header().Set(length, fmt.Sprint(size))
					}
					_, _ = rw.Write(make([]byte, size))
				}), 1, 0, "a")
				c, err := w.network.dial(w.Context(), "", "gateway:80")
				if err != nil {
					w.Fatal(err)
				}
				defer c.Close()
				if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: resnet\r\n\r\n"); err != nil {
					w.Fatal(err)
				}
				for range 4 { // the control: less than one piece at a time, and longer than writeTimeout in total
					time.Sleep(writeTimeout - time.Second)
					if _, err := io.ReadFull(c, make([]byte, piece+2000)); err != nil {
						w.Fatal(err)
					}
				}
				if l := w.gateway.Load(resnet); l.InFlight != 1 {
					w.Errorf("a slow client: %+v", l)
				}
				time.Sleep(2 * writeTimeout)
				synctest.Wait()
				if l := w.gateway.Load(resnet); l.InFlight != 0 || l.Gone != 1 || l.Failed != 0 {
					w.Errorf("a client that does not read: %+v", l)
				}
				if a := w.ask(w.Context(), "input"); a.status != 200 || a.took != 0 || len(a.body) != size {
					w.Errorf("the next one: status %d after %v, %d bytes", a.status, a.took, len(a.body))
				}
			})
		})
	}
}

// TestManyStreams checks that each of a thousand concurrent streams gets its own events as soon as they are sent, and that streams that are
// given up return their credits at once.
func TestManyStreams(t *testing.T) {
	const streams, events = 1000, 5
	start(t, Function{Protocol: OpenAI}, func(w *world) {
		w.replicas(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			prompt, _ := io.ReadAll(r.Body)
			rw.Header().Set("Content-Type", "text/event-stream")
			for i := range events {
				fmt.Fprintf(rw, "data: %s %d\n\n", prompt, i)
				rw.(http.Flusher).Flush()
				select {
				case <-time.After(100 * ms):
				case <-r.Context().Done():
					return
				}
			}
		}), streams/2, 0, "a", "b")
		ctx, cancel := context.WithCancel(w.Context())
		defer cancel()
		var wait sync.WaitGroup
		for i := range streams {
			wait.Go(func() {
				own := w.Context()
				if i%2 == 0 {
					own = ctx
				}
				a := w.ask(own, fmt.Sprint(i))
				if i%2 == 0 {
					if a.err == nil {
						w.Errorf("stream %d was given up, and is whole", i)
					}
					return
				}
				want := ""
				for n := range events {
					want += fmt.Sprintf("data: %d %d\n\n", i, n)
				}
				if a.status != 200 || a.err != nil || a.body != want || a.took != events*100*ms {
					w.Errorf("stream %d: %+v", i, a)
				}
			})
		}
		synctest.Wait()
		if l := w.gateway.Load(resnet); l.InFlight != streams {
			w.Errorf("%+v", l)
		}
		time.Sleep(250 * ms)
		cancel()
		synctest.Wait() // no time passes
		if l := w.gateway.Load(resnet); l.InFlight != streams/2 || l.Gone != streams/2 {
			w.Errorf("after half of the clients have gone: %+v", l)
		}
		wait.Wait()
		if l := w.gateway.Load(resnet); l.InFlight != 0 || l.Answered != streams/2 || l.Failed != 0 {
			w.Errorf("%+v", l)
		}
	})
}

// TestShutdown stops the server while requests are held, waiting, in a batch, and being answered. All of them get their responses, and no new
// request is accepted.
func TestShutdown(t *testing.T) {
	start(t, Function{Protocol: OIP, MaxBatch: 4}, func(w *world) {
		const held, more = 50, 150
		var wait sync.WaitGroup
		var lost atomic.Int32
		ask := func(i int) {
			wait.Go(func() {
				if i%2 == 0 {
					if a := w.ask(w.Context(), "plain"); a.status != 200 || a.body != "plain" {
						lost.Add(1)
					}
				} else if id := fmt.Sprint("r", i); !right(w.infer(w.Context(), input(id, float64(i))), id, float64(i)) {
					lost.Add(1)
				}
			})
		}
		for i := range held {
			ask(i)
		}
		synctest.Wait()
		infer := &model{}
		w.replicas(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			if strings.HasSuffix(r.URL.Path, "/infer") {
				time.Sleep(100 * ms)
				infer.ServeHTTP(rw, r)
				return
			}
			echo(100*ms).ServeHTTP(rw, r)
		}), 2, 0, "a", "b")
		for i := range more {
			ask(held + i)
		}
		synctest.Wait()
		if l := w.gateway.Load(resnet); l.Waiting == 0 || l.InFlight == 0 {
			w.Errorf("nothing waits or is served: %+v", l)
		}
		if err := w.server.Shutdown(w.Context()); err != nil {
			w.Error(err)
		}
		if l := w.gateway.Load(resnet); l.Answered != held+more || l.Waiting+l.InFlight > 0 {
			w.Errorf("at the end of Shutdown: %+v", l)
		}
		wait.Wait()
		if lost.Load() > 0 {
			w.Errorf("%d of %d accepted requests were lost", lost.Load(), held+more)
		}
		if a := w.ask(w.Context(), "late"); a.err == nil {
			w.Errorf("accepted after Shutdown: %+v", a)
		}
	})
}
