package fleet

import (
	"context"
	"log/slog"
	"math"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gshare-dev/gshare/serving/gateway"
	"github.com/gshare-dev/gshare/serving/rules/scaling"
)

// busyGateways are gateways in other processes: they know of requests at every replica, also at those that are not ready, until answered is closed.
type busyGateways struct {
	Gateways
	answered chan struct{}

	mu     sync.Mutex
	drains []string // replicas that were to be drained
}

func (g *busyGateways) Drain(ctx context.Context, _ gateway.FunctionName, replica string) error {
	g.mu.Lock()
	g.drains = append(g.drains, replica)
	g.mu.Unlock()
	select {
	case <-g.answered:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// drained returns the replicas that were to be drained, sorted.
func (g *busyGateways) drained() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Sorted(slices.Values(g.drains))
}

// TestEndOfUnready: replicas that were ready, and miss their probes now, may have requests. They answer these before they end, and a change of the
// function ends them together only if they have missed their probes for long. A server that has started again has no requests of before.
func TestEndOfUnready(t *testing.T) {
	const two, one = "minReplicas: 2, requestsPerSecond: 10", "maxReplicas: 1, minReplicas: 1, requestsPerSecond: 10"
	both := []string{"f-1", "f-2"}
	for name, test := range map[string]struct {
		first   EventKind // before Starting; empty if there is none
		unready time.Duration
		change  func(w *world) error
		drained []string // soon after the change
		deleted int
	}{
		"changed at once":          {"", second, changeTo(two, true), nil, 0},
		"changed later":            {"", 2 * time.Minute, changeTo(two, true), both, 0},
		"changed after a restart":  {Restarting, second, changeTo(two, true), nil, 2},
		"one too many":             {"", second, changeTo(one, false), []string{"f-2"}, 0},
		"one too many, restarting": {Restarting, second, changeTo(one, false), nil, 1},
	} {
		t.Run(name, func(t *testing.T) {
			var g *busyGateways
			live := func(int) life { return life{start: second} }
			startObject(t, decode(t, two, nil), live, func(f *Fleet) {
				g = &busyGateways{Gateways: f.gateways, answered: make(chan struct{})}
				f.gateways = g
			}, func(w *world) {
				sleep(5 * second)
				for _, kind := range []EventKind{test.first, Starting} {
					for _, i := range both {
						if kind != "" {
							w.events <- Event{Instance: i, Kind: kind, Message: "probe fails"}
						}
					}
				}
				sleep(test.unready)
				if err := test.change(w); err != nil {
					t.Fatal(err)
				}
				sleep(2 * second)
				if got := g.drained(); !slices.Equal(got, test.drained) || len(w.deletions()) != test.deleted {
					t.Errorf("%v are to answer their requests, %d were ended at once, want %v and %d", got, len(w.deletions()), test.drained, test.deleted)
				}
				close(g.answered)
				sleep(2 * second)
				if got, want := len(w.deletions()), test.deleted+len(test.drained); got != want {
					t.Errorf("%d were ended after their requests, want %d", got, want)
				}
			})
		})
	}
}

// TestUnreadyOfPredecessor: another leader protects the requests of replicas that miss their probes as the one did that has seen them ready.
func TestUnreadyOfPredecessor(t *testing.T) {
	both := []string{"f-1", "f-2"}
	for name, test := range map[string]struct {
		existing Existing
		unready  time.Duration // 0 if they never were ready
		drained  []string      // soon after they were taken over
		deleted  int
	}{
		"to end":                     {Existing{Ending: true}, second, both, 0},
		"to end, unready for long":   {Existing{Ending: true}, 2 * time.Minute, both, 0},
		"to end, never ready":        {Existing{Ending: true}, 0, nil, 2},
		"outdated":                   {Existing{Outdated: true}, second, nil, 0},
		"outdated, unready for long": {Existing{Outdated: true}, 2 * time.Minute, both, 0},
		"outdated, never ready":      {Existing{Outdated: true}, 0, nil, 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := &memory{T: t, events: make(chan Event), live: func(int) life { return life{start: -1} }, begin: time.Now(),
					running: map[string]chan struct{}{}, busy: map[string]int{}}
				g := &busyGateways{Gateways: gateway.New(gateway.Config{Upstream: m}), answered: make(chan struct{})}
				f, err := New(Config{Gateways: g, Platform: m, Log: slog.New(slog.DiscardHandler)}, nil)
				if err != nil {
					t.Fatal(err)
				}
				object := decode(t, "minReplicas: 2, requestsPerSecond: 10", nil)
				var existing []Existing
				for at, name := range both {
					e := test.existing
					if e.ID = scaling.ID(at + 1); test.unready > 0 {
						e.UnreadySince = time.Now().Add(-test.unready)
					}
					existing = append(existing, e)
					end := make(chan struct{}, 1)
					m.running[name] = end
					go m.run(Instance{Name: name, ID: e.ID, Function: object}, life{start: math.MaxInt64}, end)
				}
				if err := f.Restore(object, existing, nil); err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan struct{})
				go func() { defer close(done); f.Run(ctx) }()
				sleep(2 * second)
				if got := g.drained(); !slices.Equal(got, test.drained) || len(m.deletions()) != test.deleted {
					t.Errorf("%v are to answer their requests, %d were ended at once, want %v and %d", got, len(m.deletions()), test.drained, test.deleted)
				}
				close(g.answered)
				cancel()
				<-done
			})
		})
	}
}

// changeTo returns a function that changes a world's function: its scaling, and its share, too, if that is to be another one.
func changeTo(scaling string, share bool) func(w *world) error {
	return func(w *world) error {
		if share {
			return w.fleet.Set(decode(w, scaling, otherShare))
		}
		return w.fleet.Set(decode(w, scaling, nil))
	}
}

// TestChangedWhileUnready: replicas that miss their probes for a moment while the function changes are replaced one by one once they are ready again.
func TestChangedWhileUnready(t *testing.T) {
	const two = "minReplicas: 2, requestsPerSecond: 10"
	start(t, two, func(int) life { return life{start: second} }, func(w *world) {
		sleep(5 * second)
		both := []string{"f-1", "f-2"}
		for _, i := range both {
			w.events <- Event{Instance: i, Kind: Starting, Message: "probe fails"}
		}
		if err := w.fleet.Set(decode(t, two, otherShare)); err != nil {
			t.Fatal(err)
		}
		sleep(10 * second)
		if got := w.names(); !slices.Equal(got, both) {
			t.Errorf("%v run before they are ready again", got)
		}
		for _, i := range both {
			w.events <- Event{Instance: i, Kind: Ready, Address: i + ":80"}
		}
		sleep(20 * second)
		if got := w.names(); !slices.Equal(got, []string{"f-3", "f-4"}) || w.mostAtOnce() != 3 {
			t.Errorf("%v run, %d at once", got, w.mostAtOnce())
		}
	})
}
