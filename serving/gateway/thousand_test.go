package gateway

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// tokens answers with an event each 100 ms until its client has gone, or until n have been sent.
func tokens(n int) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("Content-Type", "text/event-stream")
		for i := range n {
			fmt.Fprintf(rw, "data: %d\n\n", i)
			rw.(http.Flusher).Flush()
			select {
			case <-time.After(100 * ms):
			case <-r.Context().Done():
				return
			}
		}
	})
}

// stream begins a stream of events and returns its body after the first one; nil if there is none.
func stream(ctx context.Context, client *http.Client, url string) io.ReadCloser {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader("x"))
	if err != nil {
		return nil
	}
	r.Host = "resnet"
	response, err := client.Do(r)
	if err != nil {
		return nil
	}
	if n, err := io.ReadFull(response.Body, make([]byte, len("data: 0\n\n"))); err != nil || n == 0 {
		response.Body.Close()
		return nil
	}
	return response.Body
}

// TestThousandStreams has 1,000 streams of events at once, 100 without -full, all of which the replica may have. One more waits until one of them is given
// up, and not longer. The others get all their events at their times.
func TestThousandStreams(t *testing.T) {
	const events = 10
	streams := 100
	if *full {
		streams = 1000
	}
	start(t, Function{Protocol: OpenAI}, func(w *world) {
		w.replicas(tokens(events), streams, 0, "a")
		begin := time.Now()
		var wait sync.WaitGroup
		var whole, began atomic.Int32
		first, leave := context.WithCancel(w.Context())
		for i := range streams {
			ctx := w.Context()
			if i == 0 {
				ctx = first
			}
			wait.Go(func() {
				body := stream(ctx, w.client, "http://gateway:80/v1/completions")
				if body == nil {
					w.Errorf("stream %d has not begun", i)
					return
				}
				defer body.Close()
				began.Add(1)
				text, err := io.ReadAll(body)
				if err == nil && strings.Count(string(text), "data: ") == events-1 && time.Since(begin) == events*100*ms {
					whole.Add(1)
				}
			})
		}
		synctest.Wait()
		if l := w.gateway.Load(resnet); int(began.Load()) != streams || l.InFlight != streams || l.Waiting != 0 {
			w.Errorf("%d streams have begun: %+v", began.Load(), l)
		}
		wait.Go(func() {
			body := stream(w.Context(), w.client, "http://gateway:80/v1/completions")
			if body == nil || time.Since(begin) != 350*ms {
				w.Errorf("the last stream began after %v", time.Since(begin))
				return
			}
			body.Close()
		})
		time.Sleep(350 * ms)
		if l := w.gateway.Load(resnet); l.InFlight != streams || l.Waiting != 1 {
			w.Errorf("before one is given up: %+v", l)
		}
		leave()
		wait.Wait()
		synctest.Wait()
		if l := w.gateway.Load(resnet); int(whole.Load()) != streams-1 || l.InFlight != 0 || l.Waiting != 0 || l.Failed != 0 || l.Gone == 0 {
			w.Errorf("%d streams were whole: %+v", whole.Load(), l)
		}
	})
}

// TestCancelFreesCredit prints, with -full, how long it takes on real connections from when a client gives up a stream until the replica has the request
// that waits for its credit.
func TestCancelFreesCredit(t *testing.T) {
	const least, most = 20, 1000
	rounds := least
	if *full {
		rounds = most
	}
	g := New(Config{})
	if err := g.SetFunction(Function{FunctionName: resnet, Protocol: OpenAI}); err != nil {
		t.Fatal(err)
	}
	var begun atomic.Pointer[time.Time]
	events := tokens(1_000_000)
	replica := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		now := time.Now()
		begun.Store(&now)
		events.ServeHTTP(rw, r)
	}))
	defer replica.Close()
	if err := g.SetReplicas(resnet, []Replica{{ID: "a", Address: strings.TrimPrefix(replica.URL, "http://"), Credits: 1}}); err != nil {
		t.Fatal(err)
	}
	front := httptest.NewServer(g)
	defer front.Close()
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	var took []time.Duration
	ctx, leave := context.WithCancel(t.Context())
	body := stream(ctx, client, front.URL)
	for range rounds {
		if body == nil {
			t.Fatal("a stream has not begun")
		}
		next, leaveNext := context.WithCancel(t.Context())
		waits := make(chan io.ReadCloser)
		go func() { waits <- stream(next, client, front.URL) }()
		for g.Load(resnet).Waiting == 0 {
			time.Sleep(100 * time.Microsecond)
		}
		left := time.Now()
		leave()
		body.Close()
		body, leave = <-waits, leaveNext
		took = append(took, begun.Load().Sub(left))
	}
	leave()
	if body != nil {
		body.Close()
	}
	slices.Sort(took)
	t.Logf("%d streams were given up: the next request began after %v, median, %v, 99th percentile, %v, longest", rounds, took[rounds/2], took[rounds*99/100], took[rounds-1])
	if *full && took[rounds*99/100] > 10*ms {
		t.Errorf("the 99th percentile is %v, want 10 ms on a machine that does nothing else", took[rounds*99/100])
	}
}
