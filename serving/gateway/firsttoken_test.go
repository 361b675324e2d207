package gateway

import (
	"context"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"
)

// streamsEvents answers as servers of language models do: the header at once, then the events, each after a wait.
type streamsEvents struct {
	prefill, gap time.Duration
	begin        string // sent with the header
	tokens       int
	end          string
	stays        bool // does not end the body before the client leaves
}

const (
	roleEvent  = `data: {"choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}` + "\n\n"
	tokenEvent = `data: {"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":null}]}` + "\n\n"
	doneEvent  = "data: [DONE]\n\n"
)

func (s *streamsEvents) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body) // otherwise the server does not notice that the client disconnects
	flush := http.NewResponseController(rw).Flush
	rw.Header().Set("Content-Type", "text/event-stream")
	_, _ = io.WriteString(rw, s.begin)
	_ = flush()
	wait := func(d time.Duration) bool {
		select {
		case <-time.After(d):
			return true
		case <-r.Context().Done():
			return false
		}
	}
	for i := range s.tokens {
		if !wait(map[bool]time.Duration{true: s.prefill, false: s.gap}[i == 0]) {
			return
		}
		_, _ = io.WriteString(rw, tokenEvent)
		_ = flush()
	}
	_, _ = io.WriteString(rw, s.end)
	_ = flush()
	if s.stays {
		<-r.Context().Done()
	}
}

// TestFirstToken checks that the objective of a stream is its first token: what the client waits for. A header that comes before it, or an event
// without content, meets no objective. When requests are expected to be late for it, they are refused.
func TestFirstToken(t *testing.T) {
	for name, c := range map[string]struct {
		server streamsEvents
		inTime bool
	}{
		"fast":              {streamsEvents{prefill: 500 * ms, tokens: 3, gap: time.Second, end: doneEvent}, true},
		"header before":     {streamsEvents{prefill: 3 * time.Second, tokens: 3, gap: 10 * ms, end: doneEvent}, false},
		"role before":       {streamsEvents{begin: roleEvent, prefill: 3 * time.Second, tokens: 3, gap: 10 * ms, end: doneEvent}, false},
		"comments before":   {streamsEvents{begin: ": ping\n\n", prefill: 3 * time.Second, tokens: 3, gap: 10 * ms, end: doneEvent}, false},
		"header, one token": {streamsEvents{prefill: 3 * time.Second, tokens: 1}, false},
	} {
		t.Run(name, func(t *testing.T) {
			start(t, Function{Protocol: OpenAI, SLO: time.Second}, func(w *world) {
				w.replicas(&c.server, 1, 0, "a")
				const asked = 20
				statuses := map[int]int{}
				for range asked {
					go func() { w.ask(w.Context(), "prompt") }()
					time.Sleep(4 * time.Second)
				}
				l := w.gateway.Load(resnet)
				if want := map[bool]uint64{true: asked}[c.inTime]; l.Answered != asked || l.InTime != want {
					w.Errorf("%d answered, %d in time, want %d, %d", l.Answered, l.InTime, asked, want)
				}
				for name, want := range map[string]float64{
					"gshare_gateway_time_to_first_token_seconds":   c.server.prefill.Seconds(),
					"gshare_gateway_time_per_output_token_seconds": c.server.gap.Seconds(),
				} {
					if got := histogramMean(w, name); math.Abs(got-want) > want/20 {
						w.Errorf("%s: %v, want %v", name, got, want)
					}
				}
				if d := l.P99 - c.server.prefill; d < -100*ms || d > 100*ms {
					w.Errorf("p99 %v, want that of the first token, %v", l.P99, c.server.prefill)
				}
				for range 10 { // at once: all but those that the replica takes at once are late if the first token is
					a := make(chan answer, 1)
					go func() { a <- w.ask(w.Context(), "prompt") }()
					time.Sleep(ms)
					select {
					case a := <-a:
						statuses[a.status]++
					default:
					}
				}
				if statuses[429] < 9 {
					w.Errorf("refused at once: %v", statuses)
				}
			})
		})
	}
}

// TestTimePerToken checks that a stream is in time if its first token is and the mean time between its tokens, too, where that is an objective.
func TestTimePerToken(t *testing.T) {
	fast := streamsEvents{prefill: 500 * ms, tokens: 5, gap: 40 * ms, end: doneEvent}
	slow, late, stays, one := fast, fast, fast, fast
	slow.gap, late.prefill, stays.stays, one.tokens, one.gap = 60*ms, 2*time.Second, true, 1, 0
	for name, c := range map[string]struct {
		server    http.Handler
		objective time.Duration
		inTime    bool
	}{
		"within":                  {&fast, 40 * ms, true},
		"above":                   {&fast, 40*ms - 1, false},
		"slow":                    {&slow, 50 * ms, false},
		"slow, no objective":      {&slow, 0, true},
		"late first token":        {&late, 50 * ms, false},
		"body stays open":         {&stays, 50 * ms, true},
		"one token":               {&one, ms, true},
		"not streamed":            {echo(500 * ms), ms, true},
		"one gap above, mean not": {uneven{10 * ms, 130 * ms, 10 * ms}, 50 * ms, true},
	} {
		t.Run(name, func(t *testing.T) {
			start(t, Function{Protocol: OpenAI, SLO: time.Second, TimePerToken: c.objective}, func(w *world) {
				w.replicas(c.server, 1, 0, "a")
				ctx, cancel := context.WithTimeout(w.Context(), 10*time.Second) // the client of a body that stays open leaves
				defer cancel()
				w.ask(ctx, "prompt")
				synctest.Wait()
				want := map[bool]uint64{true: 1}[c.inTime]
				if l := w.gateway.Load(resnet); l.Answered != 1 || l.InTime != want {
					w.Errorf("%d answered, %d in time, want 1, %d", l.Answered, l.InTime, want)
				}
			})
		})
	}
}

// TestTimePerTokenOfGuest: a request keeps the objective of its own function in the queue of another one that serves it.
func TestTimePerTokenOfGuest(t *testing.T) {
	for name, c := range map[string]struct {
		host, guest time.Duration
		inTime      uint64
	}{
		"the guest's":     {0, 20 * ms, 0},
		"only the host's": {20 * ms, 0, 1},
	} {
		t.Run(name, func(t *testing.T) {
			start(t, Function{Protocol: OpenAI, SLO: time.Second, TimePerToken: c.host}, func(w *world) {
				w.replicas(&streamsEvents{prefill: 500 * ms, tokens: 5, gap: 40 * ms, end: doneEvent}, 1, 0, "a")
				w.guest(Function{Protocol: OpenAI, SLO: time.Second, TimePerToken: c.guest})
				w.ask(w.Context(), "prompt", "Host", "search")
				synctest.Wait()
				if l := w.gateway.Load(search); l.Answered != 1 || l.InTime != c.inTime {
					w.Errorf("%d answered, %d in time, want 1, %d", l.Answered, l.InTime, c.inTime)
				}
			})
		})
	}
}

// uneven answers with tokens that come after each of the given times.
type uneven []time.Duration

func (u uneven) ServeHTTP(rw http.ResponseWriter, _ *http.Request) {
	rw.Header().Set("Content-Type", "text/event-stream")
	for _, gap := range append(uneven{0}, u...) {
		time.Sleep(gap)
		_, _ = io.WriteString(rw, tokenEvent)
		_ = http.NewResponseController(rw).Flush()
	}
	_, _ = io.WriteString(rw, doneEvent)
}

// TestTimePerTokenOfProtocol: only answers with the protocol OpenAI have tokens.
func TestTimePerTokenOfProtocol(t *testing.T) {
	for _, c := range []struct {
		protocol  Protocol
		objective time.Duration
		ok        bool
	}{{OpenAI, ms, true}, {OpenAI, -ms, false}, {OIP, ms, false}, {HTTP, ms, false}, {HTTP, 0, true}} {
		err := New(Config{}).SetFunction(Function{FunctionName: resnet, Protocol: c.protocol, TimePerToken: c.objective})
		if (err == nil) != c.ok {
			t.Errorf("%v, %v: %v", c.protocol, c.objective, err)
		}
	}
}

// histogramMean returns the mean of a histogram of the only function, 0 if it is empty.
func histogramMean(w *world, name string) float64 {
	families, err := w.registry.Gather()
	if err != nil {
		w.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			h := f.GetMetric()[0].GetHistogram()
			return h.GetSampleSum() / float64(h.GetSampleCount())
		}
	}
	return 0
}

// TestLearnedAtFirstToken checks that a replica's latency is known once the first token is there, not when the stream ends.
func TestLearnedAtFirstToken(t *testing.T) {
	start(t, Function{Protocol: OpenAI, SLO: time.Second}, func(w *world) {
		w.replicas(&streamsEvents{prefill: 5 * time.Second, tokens: 100, gap: time.Second}, 8, 0, "a")
		for range 4 {
			go w.ask(w.Context(), "prompt")
		}
		time.Sleep(6 * time.Second)
		if a := w.ask(w.Context(), "prompt"); a.status != 429 || a.reason != reasonLate || a.took != 0 {
			w.Errorf("%+v", a)
		}
	})
}

// TestHeaderAtOnce checks that the client gets the header when the replica sends it, whichever gateway owns the function.
func TestHeaderAtOnce(t *testing.T) {
	server := &streamsEvents{prefill: time.Minute, tokens: 2, gap: time.Second, end: doneEvent}
	check := func(t *testing.T, client *http.Client, url string) {
		begin := time.Now()
		r, _ := http.NewRequest(http.MethodPost, url, http.NoBody)
		r.Host = "resnet"
		response, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		if took := time.Since(begin); took > 10*ms || response.Header.Get("Content-Type") != "text/event-stream" {
			t.Errorf("the header came after %v: %v", took, response.Header)
		}
		body, err := io.ReadAll(response.Body)
		if took := time.Since(begin); err != nil || string(body) != tokenEvent+tokenEvent+doneEvent || took < time.Minute {
			t.Errorf("%q %v after %v", body, err, took)
		}
	}
	for _, protocol := range []Protocol{HTTP, OpenAI} {
		t.Run(protocol.String(), func(t *testing.T) {
			start(t, Function{Protocol: protocol}, func(w *world) {
				w.replicas(server, 1, 0, "a")
				check(t, w.client, "http://gateway:80/v1/completions")
			})
		})
	}
	t.Run("relayed", func(t *testing.T) {
		startCluster(t, Function{Protocol: OpenAI}, 2, true, func(c *cluster) {
			c.replicas(func(string) http.Handler { return server }, "a")
			for _, m := range c.members {
				check(c.T, c.client, "http://"+m.name+":80/v1/completions")
			}
		})
	})
}

// TestDeadlineOfFirstToken checks what bounds the wait for the first token after the header: the client's deadline, or Timeout. Neither bounds the
// rest of the stream.
func TestDeadlineOfFirstToken(t *testing.T) {
	for name, c := range map[string]struct {
		server   streamsEvents
		deadline string
		took     time.Duration
		broken   bool
		avoided  int
	}{
		"client's deadline": {streamsEvents{prefill: 3 * time.Second, tokens: 9, gap: time.Second}, "1000", time.Second, true, 0},
		"in time":           {streamsEvents{prefill: 900 * ms, tokens: 9, gap: time.Second}, "1000", 8900 * ms, false, 0},
		"a role in time":    {streamsEvents{begin: roleEvent, prefill: 3 * time.Second, tokens: 9, gap: time.Second}, "1000", time.Second, true, 0},
		"hangs":             {streamsEvents{prefill: time.Hour, tokens: 1}, "", time.Minute, true, 1},
		"hangs not":         {streamsEvents{prefill: 59 * time.Second, tokens: 9, gap: 59 * time.Second}, "", 9 * 59 * time.Second, false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			start(t, Function{Protocol: OpenAI, Timeout: time.Minute}, func(w *world) {
				w.replicas(&c.server, 1, 0, "a")
				var headers []string
				if c.deadline != "" {
					headers = []string{firstTokenHeader, c.deadline}
				}
				a := w.ask(w.Context(), "prompt", headers...)
				if a.status != 200 || a.took != c.took || (a.err != nil) != c.broken {
					w.Errorf("%+v", a)
				}
				synctest.Wait()
				if l := w.gateway.Load(resnet); l.InFlight != 0 || (l.Failed == 1) != c.broken || w.avoided() != c.avoided {
					w.Errorf("%+v, %d avoided", l, w.avoided())
				}
			})
		})
	}
}

// TestComplete checks that a client that leaves after the event [DONE] has been answered, as clients of OpenAI do before the body ends, and that one
// that leaves before has not.
func TestComplete(t *testing.T) {
	for name, c := range map[string]struct {
		protocol Protocol
		end      string
		answered bool
	}{
		"complete":             {OpenAI, doneEvent, true},
		"not complete":         {OpenAI, "", false},
		"another protocol":     {HTTP, doneEvent, false},
		"the end not complete": {OpenAI, "data: [DO", false},
	} {
		t.Run(name, func(t *testing.T) {
			start(t, Function{Protocol: c.protocol}, func(w *world) {
				w.replicas(&streamsEvents{prefill: ms, tokens: 2, gap: ms, end: c.end, stays: true}, 1, 0, "a")
				connection, err := w.network.dial(w.Context(), "", "gateway:80")
				if err != nil {
					w.Fatal(err)
				}
				go func(c net.Conn) { _, _ = io.Copy(io.Discard, c) }(connection)
				fmt.Fprintf(connection, "POST /v1/completions HTTP/1.1\r\nHost: resnet\r\nContent-Length: 0\r\n\r\n")
				time.Sleep(time.Second)
				connection.Close()
				time.Sleep(time.Second)
				l := w.gateway.Load(resnet)
				if l.InFlight != 0 || (l.Answered == 1) != c.answered || (l.Gone == 1) == c.answered || w.avoided() != 0 {
					w.Errorf("%+v", l)
				}
			})
		})
	}
}
