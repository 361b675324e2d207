package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
	"github.com/gshare-dev/gshare/serving/gateway"
	"github.com/gshare-dev/gshare/serving/rules/scaling"
	"github.com/gshare-dev/gshare/serving/rules/scaling/pool"
)

// life describes how an instance behaves.
type life struct {
	start time.Duration // time until it is ready; negative: never
	dies  time.Duration // time from its start until it ends by itself; 0: never
	ends  time.Duration // time it takes after SIGTERM; if longer than the grace period, it gets SIGKILL

	shares int // if not 0, it waits until there are fewer other instances
}

// memory is a Platform whose instances are goroutines.
type memory struct {
	*testing.T
	events chan Event
	live   func(attempt int) life
	begin  time.Time

	mu      sync.Mutex // guards the fields below
	running map[string]chan struct{}
	created []time.Duration // times of creations
	as      []Instance      // the instances as they were created
	deleted []time.Duration
	busy    map[string]int // requests in flight, by instance
	broken  int            // requests of instances that were deleted
	most    int            // largest number of instances at a time
}

func (m *memory) Events() <-chan Event { return m.events }

func (m *memory) Create(i Instance) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.running[i.Name] != nil {
		m.Errorf("%s is created twice", i.Name)
	}
	m.as = append(m.as, i)
	l := m.live(len(m.created))
	m.created = append(m.created, time.Since(m.begin))
	end := make(chan struct{}, 1)
	m.running[i.Name] = end
	m.most = max(m.most, len(m.running))
	go m.run(i, l, end)
}

func (m *memory) run(i Instance, l life, end chan struct{}) {
	send := func(e Event) {
		e.Instance = i.Name
		if e.Kind == Failed || e.Kind == Gone {
			m.mu.Lock()
			delete(m.running, i.Name)
			m.mu.Unlock()
		}
		m.events <- e
	}
	never := time.Duration(math.MaxInt64)
	started, died := time.After(l.start), time.After(cmp.Or(l.dies, never))
	if l.start < 0 {
		started = nil
		send(Event{Kind: Starting, Message: "no room"})
	}
	if l.shares > 0 {
		send(Event{Kind: Starting, Queued: true})
		for m.count() > l.shares {
			time.Sleep(100 * ms)
		}
		send(Event{Kind: Starting})
	}
	for {
		select {
		case <-started:
			send(Event{Kind: Ready, Address: i.Name + ":80"})
		case <-died:
			send(Event{Kind: Failed, Message: "exited with code 7"})
			return
		case <-end:
			time.Sleep(min(l.ends, i.Function.Grace()))
			send(Event{Kind: Gone})
			return
		}
	}
}

// count returns the number of instances.
func (m *memory) count() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.running)
}

func (m *memory) Delete(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.deleted = append(m.deleted, time.Since(m.begin))
	m.broken += m.busy[name]
	if end := m.running[name]; end != nil {
		end <- struct{}{}
	}
}

// RoundTrip answers for the instance in the URL, after the time given in the header Work.
func (m *memory) RoundTrip(r *http.Request) (*http.Response, error) {
	name := strings.TrimSuffix(r.URL.Host, ":80")
	alive := func(change int) bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.busy[name] += change
		return m.running[name] != nil
	}
	defer alive(-1)
	work, err := time.ParseDuration(r.Header.Get("Work"))
	if !alive(1) || err != nil {
		return nil, errors.New("connection refused")
	}
	time.Sleep(work)
	if !alive(0) {
		return nil, errors.New("connection reset")
	}
	return &http.Response{StatusCode: 200, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(name))}, nil
}

// world is a fleet with one function on a platform in memory.
type world struct {
	*testing.T
	*memory
	gateway *gateway.Gateway
	fleet   *Fleet
	log     *lockedBuffer
	stop    func() // ends the fleet and waits until Run has returned
}

// lockedBuffer keeps what is written to it.
type lockedBuffer struct {
	mu   sync.Mutex
	text strings.Builder
}

func (b *lockedBuffer) Write(text []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(text)
}

// lines returns the lines that contain a text.
func (b *lockedBuffer) lines(part string) []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var found []string
	for line := range strings.Lines(b.text.String()) {
		if strings.Contains(line, part) {
			found = append(found, line)
		}
	}
	return found
}

const head = "apiVersion: serving.gshare.dev/v1alpha1\nkind: GPUFunction\nmetadata: {name: f}\nspec:\n  slo: {latency: 1s}\n" +
	"  template: {spec: {terminationGracePeriodSeconds: 5, containers: [{command: [serve]}]}}\n  resources: {share: {sm: 20, memory: 1Gi}}\n"

var name = gateway.FunctionName{Namespace: "default", Name: "f"}

// start runs a test in virtual time. After the test, nothing may be left running.
func start(t *testing.T, scaling string, live func(attempt int) life, test func(w *world)) {
	startObject(t, decode(t, scaling, nil), live, func(*Fleet) {}, test)
}

// startObject is like start, for any function, whose name must be f. prepare can change the fleet before it runs.
func startObject(t *testing.T, object *api.GPUFunction, live func(attempt int) life, prepare func(*Fleet), test func(w *world)) {
	synctest.Test(t, func(t *testing.T) {
		m := &memory{T: t, events: make(chan Event), live: live, begin: time.Now(), running: map[string]chan struct{}{}, busy: map[string]int{}}
		w := &world{T: t, memory: m, gateway: gateway.New(gateway.Config{Upstream: m}), log: &lockedBuffer{}}
		var err error
		config := Config{Gateways: w.gateway, Platform: m, Log: slog.New(slog.NewTextHandler(w.log, nil))}
		if w.fleet, err = New(config, []*api.GPUFunction{object}); err != nil {
			t.Fatal(err)
		}
		prepare(w.fleet)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); w.fleet.Run(ctx) }()
		w.stop = func() { cancel(); <-done }
		synctest.Wait()
		test(w)
		w.stop()
		if len(m.running) > 0 || w.fleet.count() > 0 {
			t.Errorf("%v is left", m.running)
		}
		if l := w.gateway.Load(name); l.Replicas > 0 || l.InFlight > 0 {
			t.Errorf("the gateway still has %+v", l)
		}
	})
}

// ask sends a request that takes the given time on a replica, and returns the response's status and the time that it took.
func (w *world) ask(work time.Duration) (status int, took time.Duration) {
	begin := time.Now()
	r := &http.Request{Method: http.MethodPost, Host: "f", URL: &url.URL{Path: "/"}, RequestURI: "/", Header: http.Header{}, Body: http.NoBody}
	r.Header.Set("Work", work.String())
	answer := httptest.NewRecorder()
	w.gateway.ServeHTTP(answer, r)
	return answer.Code, time.Since(begin)
}

// load sends requests at a rate for a period, and returns the number of those not answered with 200.
func (w *world) load(rate float64, length time.Duration, work time.Duration) (failed int) {
	var wait sync.WaitGroup
	var mu sync.Mutex
	for range int(rate * length.Seconds()) {
		wait.Go(func() {
			if status, _ := w.ask(work); status != 200 {
				mu.Lock()
				failed++
				mu.Unlock()
			}
		})
		time.Sleep(time.Duration(float64(time.Second) / rate))
	}
	wait.Wait()
	return failed
}

func (w *world) status() Status { return w.fleet.Status()[0] }

// replicas returns the number of running instances.
func (m *memory) replicas() int { m.mu.Lock(); defer m.mu.Unlock(); return len(m.running) }

const (
	ms     = time.Millisecond
	second = time.Second
)

func steady(int) life { return life{start: 3 * second, ends: second} }

func (m *memory) creations() []time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.created)
}
func (m *memory) deletions() []time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.deleted)
}
func (m *memory) mostAtOnce() int     { m.mu.Lock(); defer m.mu.Unlock(); return m.most }
func (m *memory) brokenRequests() int { m.mu.Lock(); defer m.mu.Unlock(); return m.broken }

// sleep waits until the time has passed and all goroutines are blocked.
func sleep(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// TestZeroToOneToZero: a request to a function at zero starts a replica at once, which answers it. Without further requests, the replica
// ends after the window and the time in reserve.
func TestZeroToOneToZero(t *testing.T) {
	start(t, "requestsPerSecond: 10, window: 4s, keepShared: 6s", steady, func(w *world) {
		sleep(10*second + 300*ms)
		if s := w.status(); s.Reason != "Idle" || !s.Ready || len(w.creations()) > 0 {
			w.Errorf("before the first request: %+v, created at %v", s, w.creations())
		}
		if status, took := w.ask(20 * ms); status != 200 || took != 3*second+20*ms {
			w.Errorf("status %d after %v, want 200 after the start and 20 ms", status, took)
		}
		if s := w.status(); s.Reason != "Serving" || s.Replicas["ready"] != 1 {
			w.Errorf("after the answer: %+v", s)
		}
		sleep(5 * second) // reserve
		if s := w.status(); w.replicas() != 1 || s.Rate == 0 || s.Hit != 0 {
			w.Errorf("in reserve: %+v", s)
		}
		sleep(10 * second)
		if s := w.status(); w.replicas() != 0 || s.Reason != "Idle" {
			w.Errorf("at the end: %+v", s)
		}
		if status, took := w.ask(20 * ms); status != 200 || took != 3*second+20*ms {
			w.Errorf("the second time: status %d after %v", status, took)
		}
	})
}

// TestReserve: a replica in reserve serves again without being started.
func TestReserve(t *testing.T) {
	start(t, "requestsPerSecond: 10, window: 4s, keepShared: 60s", steady, func(w *world) {
		w.ask(20 * ms)
		sleep(30 * second)
		if status, took := w.ask(20 * ms); status != 200 || took != 20*ms || len(w.creations()) != 1 {
			w.Errorf("status %d after %v, created at %v", status, took, w.creations())
		}
	})
}

// TestLoadDecides: there are as many replicas as the load needs. No request is lost when their number falls, and no replica is killed.
func TestLoadDecides(t *testing.T) {
	start(t, "requestsPerSecond: 10, maxReplicas: 4, window: 10s, keepShared: 5s", steady, func(w *world) {
		failed := w.load(5, 20*second, 50*ms)
		if w.replicas() != 1 || failed > 0 {
			w.Errorf("%d replicas for half of what one can do, %d requests failed", w.replicas(), failed)
		}
		w.load(25, 60*second, 90*ms)
		if w.replicas() != 3 {
			w.Errorf("%d replicas for 25/s", w.replicas())
		}
		if s := w.status(); s.Rate < 24 || s.Rate > 26 || s.Hit < 0.99 {
			w.Errorf("%+v", s)
		}
		failed = w.load(5, 60*second, 90*ms)
		if w.replicas() != 1 || failed > 0 || w.brokenRequests() > 0 {
			w.Errorf("%d replicas after the load has fallen, %d requests failed, %d were with a replica that had to end", w.replicas(), failed, w.brokenRequests())
		}
		if w.load(60, 40*second, 90*ms); w.mostAtOnce() != 4 {
			w.Errorf("%d replicas at most, want 4", w.mostAtOnce())
		}
	})
}

// TestDecided: a subscriber gets each decision together with the load. The first decision is a cold start.
func TestDecided(t *testing.T) {
	var got []string
	object := decode(t, "requestsPerSecond: 10, window: 4s, keepShared: 1s", nil)
	startObject(t, object, steady, func(f *Fleet) {
		f.decided = func(of *api.GPUFunction, d scaling.Decision, load scaling.Rate) {
			if of != object || load < 0 {
				t.Errorf("%v, load %v", of, load)
			}
			got = append(got, string(d.Action)+": "+string(d.Rule))
		}
	}, func(w *world) {
		w.ask(50 * ms)
		sleep(20 * time.Second)
	})
	want := []string{"create: load without an instance", "demote: window below the throughput of one less", "delete: without need for long"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestMinimum(t *testing.T) {
	start(t, "requestsPerSecond: 10, minReplicas: 2, window: 2s, keepShared: 1s", steady, func(w *world) {
		sleep(time.Minute)
		if w.replicas() != 2 || w.creations()[1] != 0 {
			w.Errorf("%d replicas, created at %v", w.replicas(), w.creations())
		}
	})
}

// TestDrain: when the fleet ends, a replica answers the requests that it has, within its grace period.
func TestDrain(t *testing.T) {
	for _, test := range []struct {
		work, dies time.Duration
		want       int           // status
		deleted    time.Duration // 0: not at all
	}{
		{work: 14 * second, want: 200, deleted: 14 * second},
		{work: 60 * second, want: 502, deleted: 15 * second},
		{work: 60 * second, want: 502, dies: 12 * second},
	} {
		start(t, "requestsPerSecond: 10", func(int) life { return life{ends: second, dies: test.dies} }, func(w *world) {
			status := make(chan int, 1)
			go func() { s, _ := w.ask(test.work); status <- s }()
			sleep(10 * second)
			w.stop()
			if got := <-status; got != test.want {
				w.Errorf("a request of %v: status %d, deleted at %v", test.work, got, w.deletions())
			}
			if test.deleted == 0 && len(w.deletions()) > 0 || test.deleted > 0 && !slices.Equal(w.deletions(), []time.Duration{test.deleted}) {
				w.Errorf("deleted at %v, want %v", w.deletions(), test.deleted)
			}
		})
	}
}

// TestDrainAtScaleIn: a replica that the load no longer needs answers the request that it has.
func TestDrainAtScaleIn(t *testing.T) {
	start(t, "requestsPerSecond: 10, maxReplicas: 2, concurrency: 2, window: 2s, keepShared: 1s", func(int) life { return life{ends: second} }, func(w *world) {
		w.load(20, 2*second, 10*ms)
		begin := time.Since(w.begin)
		var wait sync.WaitGroup
		for _, takes := range []time.Duration{12 * second, 3 * second, 9 * second} { // two fill the first replica, so that the third goes to the other one
			wait.Go(func() {
				if status, _ := w.ask(takes); status != 200 {
					w.Errorf("status %d", status)
				}
			})
			sleep(ms)
		}
		sleep(7 * second)
		if s := w.status(); s.Replicas["draining"] != 1 || s.Replicas["ready"] != 1 {
			w.Errorf("the test shows nothing: %+v", s)
		}
		wait.Wait()
		sleep(ms)
		if len(w.deletions()) != 1 || w.deletions()[0] < begin+9*second || w.brokenRequests() > 0 {
			w.Errorf("deleted at %v, with %d requests", w.deletions(), w.brokenRequests())
		}
	})
}

// TestReplace: a replica that dies after having served for long is replaced at once, and requests wait for the new one.
func TestReplace(t *testing.T) {
	start(t, "requestsPerSecond: 10, minReplicas: 1", func(int) life { return life{start: second, dies: 90 * second} }, func(w *world) {
		sleep(270*second + ms)
		if want := []time.Duration{0, 90 * second, 180 * second, 270 * second}; !slices.Equal(w.creations(), want) {
			w.Fatalf("created at %v, want %v", w.creations(), want)
		}
		if status, took := w.ask(20 * ms); status != 200 || took < 900*ms || took > 1100*ms {
			w.Errorf("status %d after %v", status, took)
		}
	})
}

// TestBackOff: a replica that dies again and again is restarted after growing pauses, and its owner learns why.
func TestBackOff(t *testing.T) {
	start(t, "requestsPerSecond: 10, minReplicas: 1", func(int) life { return life{start: second, dies: 200 * ms} }, func(w *world) {
		sleep(5 * time.Minute)
		var pauses []time.Duration
		for i := range w.creations()[1:] {
			pauses = append(pauses, (w.creations()[i+1] - w.creations()[i]).Round(second))
		}
		want := []time.Duration{0, second, 2 * second, 4 * second, 8 * second, 16 * second, 32 * second, 60 * second, 60 * second, 60 * second}
		if !slices.Equal(pauses, want) {
			w.Errorf("pauses %v, want %v", pauses, want)
		}
		if s := w.status(); s.Ready || s.Reason != "Failing" || s.Message != "f-1: exited with code 7" || s.Starts != 11 || s.Failures != 11 {
			w.Errorf("%+v", s)
		}
	})
}

// TestScaleInTakesTheFailing: if one of two replicas suffices, the one that fails repeatedly ends and the one that serves stays, even
// though it is the younger one, which would otherwise end.
func TestScaleInTakesTheFailing(t *testing.T) {
	live := func(attempt int) life {
		switch attempt {
		case 0: // f-1
			return life{dies: 20 * second}
		case 1: // f-2
			return life{}
		}
		return life{start: second, dies: 200 * ms}
	}
	start(t, "requestsPerSecond: 10, minReplicas: 1, maxReplicas: 2, window: 4s, keepShared: 2s", live, func(w *world) {
		w.load(15, 30*second, 10*ms)
		if s := w.status(); s.Replicas["ready"] != 1 || s.Reason != "Failing" {
			w.Errorf("the test shows nothing: %+v", s)
		}
		sleep(20 * second)
		if s := w.status(); s.Replicas["ready"] != 1 || len(s.Replicas) != 1 || s.Reason != "Serving" {
			w.Errorf("%+v", s)
		}
		if lines := w.log.lines("keep replica"); len(lines) != 1 || !strings.Contains(lines[0], `replica=f-2 "instead of"=f-1`) {
			w.Errorf("logged %q", lines)
		}
		creations := len(w.creations())
		if status, took := w.ask(20 * ms); status != 200 || took != 20*ms || len(w.creations()) != creations {
			w.Errorf("status %d after %v", status, took)
		}
	})
}

// TestNeverReady: if a replica does not get ready, the requests waiting for it are given up, the owner learns why, and the replica ends
// once there is no load.
func TestNeverReady(t *testing.T) {
	start(t, "requestsPerSecond: 10, window: 4s, keepShared: 5s", func(int) life { return life{start: -1, ends: second} }, func(w *world) {
		go func() {
			time.Sleep(30 * second)
			if s := w.status(); s.Ready || s.Reason != "Starting" || s.Message != "f-1: no room" {
				w.Errorf("%+v", s)
			}
		}()
		if status, took := w.ask(20 * ms); status != 503 || took != time.Minute {
			w.Errorf("status %d after %v", status, took)
		}
		sleep(20 * second)
		if w.replicas() != 0 || len(w.creations()) != 1 {
			w.Errorf("%d replicas, created at %v", w.replicas(), w.creations())
		}
	})
}

// TestGPUTime: a replica is charged for its share from each start until nothing of it is left, but not while it waits for its next start.
func TestGPUTime(t *testing.T) {
	for name, test := range map[string]struct {
		life  life
		after time.Duration
		want  time.Duration // of replicas with 20 % of the SMs
	}{
		"starts":            {life{start: 30 * second}, 10 * second, 10 * second / 5},
		"serves":            {life{start: 3 * second}, 10 * second, 10 * second / 5},
		"waits for a share": {life{start: -1}, 10 * second, 10 * second / 5},
		"has failed twice":  {life{dies: 2100 * ms}, 4*second + 900*ms, 4200 * ms / 5}, // the third start would be at 5 s
		"fails again":       {life{dies: 2100 * ms}, 6 * second, (4200*ms + second) / 5},
	} {
		t.Run(name, func(t *testing.T) {
			start(t, "requestsPerSecond: 10, minReplicas: 1", func(int) life { return test.life }, func(w *world) {
				sleep(test.after)
				if s := w.status(); s.GPUTime != test.want {
					w.Errorf("%v, want %v", s.GPUTime, test.want)
				}
			})
		})
	}
	t.Run("ends", func(t *testing.T) {
		start(t, "requestsPerSecond: 10, minReplicas: 1", func(int) life { return life{ends: 2 * second} }, func(w *world) {
			sleep(8 * second)
			w.stop()
			sleep(time.Minute)
			if s := w.status(); s.GPUTime != 10*second/5 {
				w.Errorf("%v, want %v", s.GPUTime, 10*second/5)
			}
		})
	})
}

// TestSeveralGPUs: each GPU of a replica counts, and a replica with another number of GPUs is replaced.
func TestSeveralGPUs(t *testing.T) {
	on := func(gpus int64) *api.GPUFunction {
		return decode(t, "requestsPerSecond: 10, minReplicas: 1", func(f *api.GPUFunction) {
			f.Spec.Resources.Share = &api.Share{SM: new(int64(100)), Quota: new(int64(100)), Memory: "1Gi", GPUs: gpus}
		})
	}
	startObject(t, on(2), func(int) life { return life{start: second} }, func(*Fleet) {}, func(w *world) {
		sleep(10 * second)
		if s := w.status(); s.GPUTime != 20*second || len(s.Reserved) != 2 || s.Reserved[1] != s.Share || s.GPUs != 2 {
			w.Errorf("%v of GPU time, %d GPUs, holding %v", s.GPUTime, s.GPUs, s.Reserved)
		}
		if err := w.fleet.Set(on(3)); err != nil {
			w.Fatal(err)
		}
		sleep(10 * second)
		if s := w.status(); len(s.Reserved) != 3 || len(w.creations()) != 2 || w.replicas() != 1 {
			w.Errorf("%d replicas with %d GPUs, %d started", w.replicas(), len(s.Reserved), len(w.creations()))
		}
	})
}

// TestSlowToDie: a new replica can start while an old one is still ending.
func TestSlowToDie(t *testing.T) {
	start(t, "requestsPerSecond: 10, window: 2s, keepShared: 1s", func(int) life { return life{start: second, ends: time.Hour} }, func(w *world) {
		w.ask(20 * ms)
		for len(w.deletions()) == 0 {
			sleep(100 * ms)
		}
		if status, took := w.ask(20 * ms); status != 200 || took != second+20*ms || w.mostAtOnce() != 2 {
			w.Errorf("status %d after %v, %d replicas at once", status, took, w.mostAtOnce())
		}
	})
}

// TestStop: when a fleet ends, it ends replicas that are starting, serving, waiting for their next try, or already ending.
func TestStop(t *testing.T) {
	lives := []life{{start: -1}, {start: 0, ends: time.Hour}, {start: second, dies: 10 * ms}, {start: second, dies: 10 * ms}}
	start(t, "requestsPerSecond: 10, minReplicas: 3", func(attempt int) life { return lives[min(attempt, 3)] }, func(w *world) {
		sleep(200 * ms)
		if s := w.status(); s.Replicas["starting"] != 1 || s.Replicas["ready"] != 1 || s.Replicas["failed"] != 1 {
			w.Errorf("the test shows nothing: %+v", s)
		}
		begin := time.Now()
		w.stop()
		if took := time.Since(begin); took != 5*second {
			w.Errorf("the end took %v, want the grace period", took)
		}
	})
}

// TestChosenLeaves: of the ready replicas, the one that the autoscaler has chosen ends, whether it is the older or the younger one.
func TestChosenLeaves(t *testing.T) {
	for _, chosen := range []scaling.ID{1, 2} {
		t.Run(fmt.Sprint(chosen), func(t *testing.T) {
			fn := &function{variants: []variant{{}}, state: scaling.State{LastID: 2, Instances: []scaling.Instance{{ID: 3 - chosen, Residency: scaling.Shared}}}}
			have := fn.standing(nil, []*instance{{Instance: Instance{ID: 1}, phase: ready}, {Instance: Instance{ID: 2}, phase: ready}}, 0, gateway.New(gateway.Config{}))
			if step, _ := (pool.Policy{}).Next(fn.state.Instances, have); step.Do != pool.Stop || have[step.At].ID != chosen {
				t.Errorf("%+v", step)
			}
		})
	}
}
