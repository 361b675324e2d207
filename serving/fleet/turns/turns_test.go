package turns

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"

	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
	"github.com/gshare-dev/gshare/serving/fleet"
	"github.com/gshare-dev/gshare/serving/gateway"
	"github.com/gshare-dev/gshare/vgpu/share"
)

const (
	ms        = time.Millisecond
	numGPUs   = 2
	gpuMemory = 16 << 30
	objective = 3 * time.Second
	hang      = "/hang" // path of requests that are not answered
)

// platform has servers that start in 200 ms and end in 50 ms, and fail at random if they are to. It is also the transport to them.
type platform struct {
	t      *testing.T
	events chan fleet.Event

	mu        sync.Mutex // guards what follows
	random    *rand.Rand
	fails     bool
	failFirst bool
	hangs     bool            // none becomes ready
	running   map[string]bool // ready or not, until gone
	ready     map[string]bool
	ended     map[string]chan struct{}
	most      int // that ran at once
	starts    int
}

func newPlatform(t *testing.T) *platform {
	return &platform{
		t: t, events: make(chan fleet.Event), random: rand.New(rand.NewPCG(2, 2)), running: map[string]bool{}, ready: map[string]bool{}, ended: map[string]chan struct{}{},
	}
}

func (p *platform) Events() <-chan fleet.Event { return p.events }

func (p *platform) Create(i fleet.Instance) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if i.Share.SMRequest != share.Whole || i.Share.QuotaRequest != share.Whole {
		p.t.Errorf("%s has the share %+v", i.Name, i.Share)
	}
	p.running[i.Name] = true
	p.starts++
	if p.most = max(p.most, len(p.running)); p.most > numGPUs {
		p.t.Errorf("%d servers run on %d GPUs", p.most, numGPUs)
	}
	ended := make(chan struct{}, 2)
	p.ended[i.Name] = ended
	fails, hangs := p.failFirst && p.starts == 1 || p.fails && p.random.IntN(5) == 0, p.hangs || p.fails && p.random.IntN(10) == 0
	go p.live(i.Name, ended, fails, hangs)
}

// live runs a server until it is ended or fails.
func (p *platform) live(name string, ended chan struct{}, fails, hangs bool) {
	kind := fleet.Gone
	select {
	case <-time.After(200 * ms):
		if fails {
			kind = fleet.Failed
			break
		}
		if !hangs {
			p.mu.Lock()
			p.ready[name] = true
			p.mu.Unlock()
			p.events <- fleet.Event{Instance: name, Kind: fleet.Ready, Address: name}
		}
		<-ended
	case <-ended:
	}
	time.Sleep(50 * ms)
	p.mu.Lock()
	delete(p.running, name)
	delete(p.ready, name)
	p.mu.Unlock()
	p.events <- fleet.Event{Instance: name, Kind: kind, Message: "exited"}
}

func (p *platform) Delete(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended[name] <- struct{}{}
}

// kill ends a server that is ready.
func (p *platform) kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for name := range p.ready {
		p.ended[name] <- struct{}{}
		return
	}
}

// RoundTrip answers in 10 ms, if the server runs.
func (p *platform) RoundTrip(r *http.Request) (*http.Response, error) {
	takes := 10 * ms
	if r.URL.Path == hang {
		takes = time.Hour
	}
	select {
	case <-time.After(takes):
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.ready[r.URL.Host] {
		return nil, fmt.Errorf("%s does not run", r.URL.Host)
	}
	return &http.Response{StatusCode: http.StatusOK, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{}, Body: io.NopCloser(strings.NewReader("")), Request: r}, nil
}

func functions(t *testing.T, n int) []*api.GPUFunction {
	t.Helper()
	return functionsFor(t, slices.Repeat([]time.Duration{objective}, n)...)
}

// functionsFor returns functions with these objectives.
func functionsFor(t *testing.T, objectives ...time.Duration) []*api.GPUFunction {
	t.Helper()
	var texts []string
	for i, objective := range objectives {
		texts = append(texts, fmt.Sprintf(`apiVersion: serving.gshare.dev/v1alpha1
kind: GPUFunction
metadata: {name: f%d}
spec:
  slo: {latency: %v}
  template: {spec: {terminationGracePeriodSeconds: 1, containers: [{name: server, command: [server]}]}}
  resources: {share: {sm: 100, memory: 16Gi}}
  scaling: {requestsPerSecond: 100}
`, i, objective))
	}
	all, err := api.Decode([]byte(strings.Join(texts, "---\n")))
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// world is turns of functions behind a gateway.
type world struct {
	*testing.T
	*platform
	gateway *gateway.Gateway
	turns   *Turns
	within  map[string]time.Duration // by function

	mu      sync.Mutex
	answers map[string]map[int]int // number of answers by function and status
}

func start(t *testing.T, n int) (w *world, stop func()) {
	t.Helper()
	return startWith(t, functions(t, n))
}

func startWith(t *testing.T, functions []*api.GPUFunction) (w *world, stop func()) {
	t.Helper()
	p := newPlatform(t)
	w = &world{T: t, platform: p, within: map[string]time.Duration{}, answers: map[string]map[int]int{}, gateway: gateway.New(gateway.Config{Upstream: p, Metrics: prometheus.NewRegistry()})}
	var err error
	w.turns, err = New(Config{Gateway: w.gateway, Platform: p, GPUs: numGPUs, Memory: gpuMemory, Log: slog.New(slog.DiscardHandler)}, functions)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range functions {
		w.within[f.Name] = f.Spec.SLO.Latency.Value()
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); w.turns.Run(ctx) }()
	return w, func() { cancel(); <-done }
}

// ask sends a request to a function, and holds that it is answered or refused in time.
func (w *world) ask(function string) int {
	r := httptest.NewRequest(http.MethodPost, "http://"+function+"/", strings.NewReader("hello"))
	answer := httptest.NewRecorder()
	began := time.Now()
	w.gateway.ServeHTTP(answer, r)
	if took := time.Since(began); took > w.within[function]+50*ms {
		w.Errorf("%s: status %d after %v", function, answer.Code, took)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.answers[function] == nil {
		w.answers[function] = map[int]int{}
	}
	w.answers[function][answer.Code]++
	return answer.Code
}

// TestTurns lets six functions have two GPUs in turn: all requests are answered, within their objective, by servers of which never more run than there
// are GPUs.
func TestTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, stop := start(t, 6)
		var clients sync.WaitGroup
		const requests = 1200
		for i := range requests {
			clients.Go(func() { w.ask(fmt.Sprint("f", i%6)) })
			time.Sleep(20 * ms)
		}
		clients.Wait()
		stop()
		late := 0
		for f, answers := range w.answers {
			for status, n := range answers {
				if status != http.StatusOK {
					late += n
				}
			}
			if answers[http.StatusOK] < requests/6*9/10 {
				t.Errorf("%s: %v", f, answers)
			}
		}
		t.Logf("%d of %d requests refused, %d starts", late, requests, w.starts)
		if w.starts > requests/5 {
			t.Errorf("%d starts for %d requests", w.starts, requests)
		}
		if len(w.running) > 0 {
			t.Errorf("%v run on", w.running)
		}
	})
}

// TestAlone lets two functions keep the two GPUs: each is started once.
func TestAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, stop := start(t, 2)
		for i := range 100 {
			if status := w.ask(fmt.Sprint("f", i%2)); status != http.StatusOK {
				t.Errorf("status %d", status)
			}
			time.Sleep(300 * ms) // longer than a turn lasts that is not used
		}
		stop()
		if w.starts != 2 {
			t.Errorf("%d starts", w.starts)
		}
		if s := w.turns.Status(); len(s) != 2 || s[0].Starts != 1 {
			t.Errorf("%+v", s)
		}
	})
}

// TestFaults lets servers fail, not become ready, and be killed. Each request is answered or refused in time, and afterwards each function answers.
func TestFaults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, stop := start(t, 6)
		w.platform.mu.Lock()
		w.fails = true
		w.platform.mu.Unlock()
		var clients sync.WaitGroup
		for i := range 3000 {
			clients.Go(func() { w.ask(fmt.Sprint("f", i%6)) })
			time.Sleep(20 * ms)
			if i%50 == 0 {
				w.kill()
			}
		}
		clients.Wait()
		w.platform.mu.Lock()
		w.fails = false
		w.platform.mu.Unlock()
		time.Sleep(10 * time.Minute) // starts that hang are given up
		for i := range 6 {
			answered := false
			for range 100 {
				answered = answered || w.ask(fmt.Sprint("f", i)) == http.StatusOK
			}
			if !answered {
				t.Errorf("f%d is lost: %v", i, w.answers)
			}
		}
		stop()
	})
}

// TestOneRequest lets the first start of a function fail, for which one request waits and no other comes: it is answered by the next one.
func TestOneRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, stop := start(t, 1)
		w.failFirst = true
		if status := w.ask("f0"); status != http.StatusOK {
			t.Errorf("status %d", status)
		}
		stop()
		if w.starts != 2 {
			t.Errorf("%d starts", w.starts)
		}
	})
}

// TestHung lets requests to two functions hang. A third one gets a GPU once they have had their grace period.
func TestHung(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, stop := start(t, 3)
		ctx, leave := context.WithCancel(context.Background())
		var clients sync.WaitGroup
		for _, f := range []string{"f0", "f1"} {
			clients.Go(func() {
				r := httptest.NewRequestWithContext(ctx, http.MethodPost, "http://"+f+hang, strings.NewReader("hello"))
				w.gateway.ServeHTTP(httptest.NewRecorder(), r)
			})
		}
		time.Sleep(time.Second)
		if status := w.ask("f2"); status != http.StatusOK {
			t.Errorf("status %d", status)
		}
		leave()
		clients.Wait()
		stop()
	})
}

// A function that does not fit, or is to be kept, is refused, with its name.
func TestNewRefuses(t *testing.T) {
	p := newPlatform(t)
	c := Config{
		Gateway: gateway.New(gateway.Config{Metrics: prometheus.NewRegistry()}), Platform: p, GPUs: 1, Memory: gpuMemory - 1, Log: slog.New(slog.DiscardHandler),
	}
	if _, err := New(c, functions(t, 1)); err == nil || !strings.Contains(err.Error(), "default/f0 wants 16384 MiB") {
		t.Errorf("error %v", err)
	}
	kept := functions(t, 1)
	kept[0].Spec.Scaling.MinReplicas = 1
	c.Memory = gpuMemory
	if _, err := New(c, kept); err == nil || !strings.Contains(err.Error(), "minReplicas") {
		t.Errorf("error %v", err)
	}
}

// busy keeps two functions, f0 and f1, from ever being idle until it is stopped.
func (w *world) busy(clients *sync.WaitGroup, over *atomic.Bool) {
	for i := range 2 {
		for range 3 {
			clients.Go(func() {
				for !over.Load() {
					w.ask(fmt.Sprint("f", i))
				}
			})
		}
	}
}

// TestObjectives has two functions keep both GPUs busy, whose requests are in time without an end. A third one, of which a request comes now and then,
// has its turns nevertheless: with an objective that is far longer, and with one that is too short by what a load is expected to take at first.
func TestObjectives(t *testing.T) {
	for name, objective := range map[string]time.Duration{"long": 8 * time.Second, "short": 1500 * ms} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, stop := startWith(t, functionsFor(t, time.Second, time.Second, objective))
				var clients sync.WaitGroup
				var over atomic.Bool
				w.busy(&clients, &over)
				time.Sleep(21 * time.Second) // ten times as long as a load is taken to need
				answered := 0
				for range 5 {
					if w.ask("f2") == http.StatusOK {
						answered++
					}
					time.Sleep(time.Second)
				}
				over.Store(true)
				clients.Wait()
				stop()
				if answered < 4 {
					t.Errorf("%d of 5 requests are answered: %v", answered, w.answers)
				}
				for _, f := range []string{"f0", "f1"} {
					if n := w.answers[f]; n[http.StatusOK] < 19*(n[http.StatusTooManyRequests]+n[http.StatusGatewayTimeout]) {
						t.Errorf("%s: %v", f, n)
					}
				}
			})
		})
	}
}

// TestStartLimit: a server that does not become ready has five minutes beside what its startup probe allows, and is then started again.
func TestStartLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := functions(t, 1)
		all[0].Container().StartupProbe = &v1.Probe{InitialDelaySeconds: 5, PeriodSeconds: 10, FailureThreshold: 60}
		w, stop := startWith(t, all)
		w.hangs = true
		w.ask("f0")
		time.Sleep(15*time.Minute + 5*time.Second - objective - 2*poll)
		if s := w.turns.Status()[0]; s.Reason != "Starting" || s.Failures != 0 {
			t.Errorf("before the limit: %+v", s)
		}
		time.Sleep(3 * poll)
		if s := w.turns.Status()[0]; s.Failures != 1 || !strings.Contains(s.Message, "not ready in time") {
			t.Errorf("after the limit: %+v", s)
		}
		time.Sleep(time.Second)
		w.hangs = false
		if status := w.ask("f0"); status != http.StatusOK {
			t.Errorf("status %d", status)
		}
		stop()
	})
}

// TestStatus says of a function whose server does not start why, and of others how long they had a GPU.
func TestStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, stop := start(t, 2)
		w.failFirst = true
		answer := make(chan int, 1)
		go func() { answer <- w.ask("f0") }()
		time.Sleep(500 * ms)
		if s := w.turns.Status()[0]; s.Reason != "Failing" || s.Message != "exited" || s.Failures != 1 || s.Ready {
			t.Errorf("after a failure: %+v", s)
		}
		if status := <-answer; status != http.StatusOK {
			t.Errorf("status %d", status)
		}
		for range 120 { // one each 95 ms, of which it is unused for less than idleEnd
			time.Sleep(idleEnd - 15*ms)
			w.ask("f0")
		}
		s := w.turns.Status()
		if s[0].Reason != "Serving" || s[0].Message != "" || s[0].Replicas["ready"] != 1 || s[0].Rate < 10 || s[0].Rate > 11 || s[0].GPUTime < 11*time.Second {
			t.Errorf("%+v", s[0])
		}
		if s[1].Reason != "Idle" || len(s[1].Replicas) > 0 || s[1].Rate != 0 || s[1].GPUTime != 0 {
			t.Errorf("never asked: %+v", s[1])
		}
		stop()
	})
}
