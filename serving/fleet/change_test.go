package fleet

import (
	"context"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
	"github.com/gshare-dev/gshare/serving/gateway"
	"github.com/gshare-dev/gshare/serving/rules/scaling"
)

// decode returns the function of the other tests with the given scaling, modified by change.
func decode(t testing.TB, scaling string, change func(f *api.GPUFunction)) *api.GPUFunction {
	t.Helper()
	functions, err := api.Decode([]byte(head + "  scaling: {" + scaling + "}\n"))
	if err != nil {
		t.Fatal(err)
	}
	if change != nil {
		change(functions[0])
	}
	return functions[0]
}

func otherShare(f *api.GPUFunction) { f.Spec.Resources.Share.SM = new(int64(30)) }

// names returns the instances that run, sorted.
func (m *memory) names() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []string
	for name := range m.running {
		all = append(all, name)
	}
	slices.Sort(all)
	return all
}

func TestChangedShare(t *testing.T) {
	const three = "minReplicas: 3, requestsPerSecond: 10"
	start(t, three, func(int) life { return life{start: 3 * second} }, func(w *world) {
		time.Sleep(10 * second)
		failed := make(chan int)
		go func() { failed <- w.load(20, 30*second, 50*ms) }()
		if err := w.fleet.Set(decode(t, three, otherShare)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(1500 * ms)
		if got := w.names(); !slices.Equal(got, []string{"f-1", "f-2", "f-3", "f-4"}) {
			t.Errorf("%v run, want one replacement", got)
		}
		if n := <-failed; n != 0 {
			t.Errorf("%d requests failed", n)
		}
		time.Sleep(10 * second)
		if got := w.names(); !slices.Equal(got, []string{"f-4", "f-5", "f-6"}) || w.most != 4 {
			t.Errorf("%v run, %d at once", got, w.most)
		}
		for _, i := range w.fleet.instances {
			if i.Share.SMRequest != 300 {
				t.Errorf("%s has %v", i.Name, i.Share)
			}
		}
	})
}

func TestChangedProtocol(t *testing.T) {
	const one = "minReplicas: 1, requestsPerSecond: 10"
	start(t, one, func(int) life { return life{start: second} }, func(w *world) {
		time.Sleep(5 * second)
		if err := w.fleet.Set(decode(t, one, func(f *api.GPUFunction) { f.Spec.Protocol = api.OIP })); err != nil {
			t.Fatal(err)
		}
		time.Sleep(30 * second)
		if got := w.names(); !slices.Equal(got, []string{"f-2"}) {
			t.Errorf("%v run, want one of the new protocol", got)
		}
	})
}

func TestChangedBeforeReady(t *testing.T) {
	const one = "minReplicas: 1, requestsPerSecond: 10"
	start(t, one, func(n int) life { return life{start: []time.Duration{time.Hour, 3 * second}[min(n, 1)]} }, func(w *world) {
		time.Sleep(5 * second)
		if err := w.fleet.Set(decode(t, one, otherShare)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * second)
		if got := w.names(); !slices.Equal(got, []string{"f-2"}) || w.status().Replicas[string(ready)] != 1 {
			t.Errorf("%v run, %v", got, w.status())
		}
	})
}

// TestChangedToFailing: a new specification that fails ends no replica of the old one, and the function can be changed back.
func TestChangedToFailing(t *testing.T) {
	const two = "minReplicas: 2, requestsPerSecond: 10"
	start(t, two, func(n int) life {
		if n >= 2 {
			return life{start: time.Hour, dies: second}
		}
		return life{start: second}
	}, func(w *world) {
		time.Sleep(5 * second)
		if err := w.fleet.Set(decode(t, two, otherShare)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Minute)
		if s := w.status(); s.Replicas[string(ready)] != 2 || s.Failures < 3 {
			t.Errorf("%+v", s)
		}
		if status, _ := w.ask(ms); status != 200 {
			t.Errorf("status %d", status)
		}
		w.live = func(int) life { return life{start: second} }
		if err := w.fleet.Set(decode(t, two, nil)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Minute)
		if got := w.names(); len(got) != 2 {
			t.Errorf("%v run", got)
		}
	})
}

// TestChangedAgain: while the replacement of a replica fails, the function is changed once more, either to something that works or back. The
// failing replacement is given up, and every request finds a replica.
func TestChangedAgain(t *testing.T) {
	const one = "minReplicas: 1, requestsPerSecond: 10"
	works := func(f *api.GPUFunction) { f.Spec.Resources.Share.SM = new(int64(40)) }
	for name, test := range map[string]struct {
		change func(f *api.GPUFunction)
		want   []string
	}{"fixed": {works, []string{"f-3"}}, "back": {nil, []string{"f-1"}}} {
		for when, bad := range map[string]life{"failing": {start: -1, dies: second}, "starting": {start: -1}} {
			t.Run(name+" while "+when, func(t *testing.T) {
				var w *world
				start(t, one, func(attempt int) life {
					if attempt > 0 && w.as[attempt].Share.SMRequest == 300 {
						return bad
					}
					return life{start: second}
				}, func(started *world) {
					w = started
					sleep(5 * second)
					failed := make(chan int)
					go func() { failed <- w.load(2, 60*second, 50*ms) }()
					for _, change := range []func(*api.GPUFunction){otherShare, test.change} {
						if err := w.fleet.Set(decode(t, one, change)); err != nil {
							t.Fatal(err)
						}
						sleep(20 * second)
					}
					if got := w.names(); !slices.Equal(got, test.want) {
						t.Errorf("%v run, want %v", got, test.want)
					}
					creations := len(w.creations())
					if n := <-failed; n != 0 || len(w.creations()) != creations {
						t.Errorf("%d requests failed, created at %v", n, w.creations())
					}
				})
			})
		}
	}
}

// TestChangedInReserve: the replacement of a replica in reserve is also in reserve, and the old replica stays in reserve meanwhile.
func TestChangedInReserve(t *testing.T) {
	const rare = "requestsPerSecond: 10, window: 2s, keepShared: 60s"
	start(t, rare, steady, func(w *world) {
		w.ask(0)
		sleep(10 * second)
		if s := w.status(); s.Shared != 1 {
			t.Fatalf("the test shows nothing: %+v", s)
		}
		if err := w.fleet.Set(decode(t, rare, otherShare)); err != nil {
			t.Fatal(err)
		}
		sleep(1500 * ms)
		if i := w.fleet.instances["f-1"]; i.phase != ready || i.Residency != scaling.Shared || len(w.as) != 2 || w.as[1].Residency != scaling.Shared {
			t.Errorf("%v is %v, created were %v", i.Name, i.Residency, w.as)
		}
	})
}

// TestResidencyOfNextStart: a replica in reserve that fails is created again as one in reserve.
func TestResidencyOfNextStart(t *testing.T) {
	start(t, "requestsPerSecond: 10, window: 2s, keepShared: 60s", func(int) life { return life{start: second, dies: 20 * second} }, func(w *world) {
		w.ask(0)
		sleep(30 * second)
		if len(w.as) != 2 || w.as[0].Residency != scaling.Hot || w.as[1].Residency != scaling.Shared {
			t.Errorf("created were %v", w.as)
		}
	})
}

// TestLowerMaximum: lowering the maximum ends replicas even though the load needs them, without losing any of their requests.
func TestLowerMaximum(t *testing.T) {
	start(t, "minReplicas: 4, requestsPerSecond: 10", steady, func(w *world) {
		sleep(5 * second)
		failed := make(chan int)
		go func() { failed <- w.load(30, 60*second, 50*ms) }()
		sleep(second)
		if err := w.fleet.Set(decode(t, "maxReplicas: 2, requestsPerSecond: 10", nil)); err != nil {
			t.Fatal(err)
		}
		sleep(10 * second)
		if s := w.status(); s.Replicas["ready"] != 2 || len(s.Replicas) != 1 {
			t.Errorf("%v", s.Replicas)
		}
		if n := <-failed; n != 0 || w.replicas() != 2 || w.brokenRequests() != 0 {
			t.Errorf("%d requests failed, %d were with a replica that ended, %v run", n, w.brokenRequests(), w.names())
		}
	})
}

func TestChangedScaling(t *testing.T) {
	start(t, "minReplicas: 1, requestsPerSecond: 10", func(int) life { return life{start: second} }, func(w *world) {
		time.Sleep(5 * second)
		if err := w.fleet.Set(decode(t, "minReplicas: 3, requestsPerSecond: 20", nil)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * second)
		if got := w.names(); !slices.Equal(got, []string{"f-1", "f-2", "f-3"}) {
			t.Errorf("%v run: want f-1 kept", got)
		}
		bad := decode(t, "requestsPerSecond: 20", nil)
		bad.Spec.Batching.MaxBatch = 1 << 20
		if err := w.fleet.Set(bad); err == nil {
			t.Error("an invalid change was accepted")
		}
		time.Sleep(5 * second)
		if got := w.names(); !slices.Equal(got, []string{"f-1", "f-2", "f-3"}) {
			t.Errorf("%v run after a change that was refused", got)
		}
	})
}

func TestRemove(t *testing.T) {
	start(t, "minReplicas: 2, requestsPerSecond: 10", func(int) life { return life{start: second, ends: second} }, func(w *world) {
		time.Sleep(5 * second)
		answered := make(chan int)
		go func() { status, _ := w.ask(2 * second); answered <- status }()
		time.Sleep(ms)
		w.fleet.Remove(name)
		if !w.fleet.Has(name) {
			t.Error("the fleet has it no more, while a replica ends")
		}
		if status := <-answered; status != 200 {
			t.Errorf("a request that a replica had got status %d", status)
		}
		time.Sleep(5 * second)
		if status, _ := w.ask(ms); status != 404 || len(w.names()) != 0 || len(w.fleet.Status()) != 0 || w.fleet.Has(name) {
			t.Errorf("status %d, %v run", status, w.names())
		}
		if err := w.fleet.Set(decode(t, "minReplicas: 1, requestsPerSecond: 10", nil)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * second)
		if status, _ := w.ask(ms); status != 200 {
			t.Errorf("status %d after it was added again", status)
		}
	})
}

// TestSuccessor: of two successive fleets on the same platform, the second continues with the instances and the load of the first.
func TestSuccessor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &memory{T: t, events: make(chan Event), live: func(int) life { return life{start: second} }, begin: time.Now(),
			running: map[string]chan struct{}{}, busy: map[string]int{}}
		g := gateway.New(gateway.Config{Upstream: m})
		lead := func(f *Fleet) (stop func()) {
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan struct{})
			go func() { defer close(done); f.Run(ctx) }()
			return func() { cancel(); <-done }
		}
		object := decode(t, "minReplicas: 2, requestsPerSecond: 10, keepShared: 5s, window: 20s", nil)
		first, err := New(Config{Gateways: g, Platform: m, Log: slog.New(slog.DiscardHandler), KeepReplicas: true}, []*api.GPUFunction{object})
		if err != nil {
			t.Fatal(err)
		}
		stop := lead(first)
		time.Sleep(5 * second)
		stop()
		if got := m.names(); !slices.Equal(got, []string{"f-1", "f-2"}) {
			t.Fatalf("%v run after the first", got)
		}
		second, err := New(Config{Gateways: g, Platform: m, Log: slog.New(slog.DiscardHandler)}, nil)
		if err != nil {
			t.Fatal(err)
		}
		existing := []Existing{{ID: 2, Residency: scaling.Hot, Address: "f-2:80"}, {ID: 1, Address: "f-1:80"}}
		load := slices.Repeat([]uint64{35}, 20) // needs 4 replicas
		if err := second.Restore(object, existing, load); err != nil {
			t.Fatal(err)
		}
		stop = lead(second)
		synctest.Wait()
		if got := m.names(); !slices.Equal(got, []string{"f-1", "f-2", "f-3", "f-4"}) || len(m.created) != 4 {
			t.Errorf("%v run, %d were created: the load of before wants 4", got, len(m.created))
		}
		stop()
	})
}

func TestOutdatedOfPredecessor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &memory{T: t, events: make(chan Event), live: func(int) life { return life{start: 3 * second} }, begin: time.Now(),
			running: map[string]chan struct{}{"f-7": make(chan struct{}, 1)}, busy: map[string]int{}}
		f, err := New(Config{Gateways: gateway.New(gateway.Config{Upstream: m}), Platform: m, Log: slog.New(slog.DiscardHandler), KeepReplicas: true}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Restore(decode(t, "minReplicas: 1, requestsPerSecond: 10", nil), []Existing{{ID: 7, Address: "f-7:80", Outdated: true}}, nil); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		go f.Run(ctx)
		time.Sleep(2 * second)
		if s := f.Status()[0]; s.Replicas[string(ready)] != 1 || s.Replicas[string(starting)] != 1 {
			t.Errorf("%v before the other one is ready", s.Replicas)
		}
		time.Sleep(2 * second)
		if len(m.running["f-7"]) != 1 || m.running["f-8"] == nil {
			t.Errorf("f-7 was not ended, or f-8 is not there: %v", m.names())
		}
		cancel()
		synctest.Wait()
		m.running["f-8"] <- struct{}{}
		<-m.events
	})
}
