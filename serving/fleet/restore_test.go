package fleet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gshare-dev/gshare/serving/gateway"
	"github.com/gshare-dev/gshare/serving/rules/scaling"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// remote plays gateways in other processes: the test sets what they have counted.
type remote struct {
	*gateway.Gateway
	mu   sync.Mutex
	load gateway.Load
}

func (r *remote) Load(gateway.FunctionName) gateway.Load {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.load
}

// count sets the total number of requests, all of which were answered in time.
func (r *remote) count(n uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.load = gateway.Load{Arrived: n, Received: n, Answered: n, InTime: n}
}

// restored is a fleet that continues with what an earlier fleet has left, and also leaves its own replicas.
type restored struct {
	*memory
	remote *remote
	fleet  *Fleet
}

// restore runs a test in virtual time, with a fleet restored from the existing instances, all of which are running.
func restore(t *testing.T, scaling string, existing []Existing, received []uint64, counted uint64, test func(r *restored)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		m := &memory{T: t, events: make(chan Event), live: func(int) life { return life{start: second} }, begin: time.Now(),
			running: map[string]chan struct{}{}, busy: map[string]int{}}
		r := &restored{memory: m, remote: &remote{Gateway: gateway.New(gateway.Config{Upstream: m})}}
		r.remote.count(counted)
		for _, e := range existing {
			i := Instance{Name: InstanceName(name, e.ID), ID: e.ID, Function: decode(t, scaling, nil)}
			end := make(chan struct{}, 1)
			m.running[i.Name] = end
			go m.run(i, life{start: math.MaxInt64}, end)
		}
		var err error
		if r.fleet, err = New(Config{Gateways: r.remote, Platform: m, Log: slog.New(slog.DiscardHandler)}, nil); err != nil {
			t.Fatal(err)
		}
		if err := r.fleet.Restore(decode(t, scaling, nil), existing, received); err != nil {
			t.Fatal(err)
		}
		done := make(chan struct{})
		go func() { defer close(done); r.fleet.Run(ctx) }()
		synctest.Wait()
		test(r)
		cancel()
		<-done
	})
}

// TestLoadOfBefore: what gateways counted before the fleet began is not load, and neither is a drop of their counts.
func TestLoadOfBefore(t *testing.T) {
	restore(t, "requestsPerSecond: 10", nil, nil, 1e6, func(r *restored) {
		sleep(5 * second)
		r.remote.count(5e5) // one of two gateways is gone
		sleep(1500 * ms)
		if len(r.creations()) != 0 {
			t.Errorf("created at %v without load", r.creations())
		}
		r.remote.count(5e5 + 8)
		sleep(second)
		if s := r.fleet.Status()[0]; len(r.creations()) != 1 || s.Rate != 8 || s.Hit != 1 {
			t.Errorf("created at %v, %+v: want one replica, and 8 requests a second", r.creations(), s)
		}
	})
}

func TestRestore(t *testing.T) {
	at := func(id scaling.ID) string { return fmt.Sprintf("f-%d:80", id) }
	for name, test := range map[string]struct {
		scaling  string
		existing []Existing
		received []uint64
		want     []string // running after some seconds
		created  int
	}{
		"nothing":            {"requestsPerSecond: 10", nil, nil, nil, 0},
		"none is missing":    {"requestsPerSecond: 10, minReplicas: 1", []Existing{{ID: 3, Address: at(3)}}, nil, []string{"f-3"}, 0},
		"one that starts":    {"requestsPerSecond: 10, minReplicas: 1", []Existing{{ID: 3}}, nil, []string{"f-3"}, 0},
		"IDs go on":          {"requestsPerSecond: 10, minReplicas: 2", []Existing{{ID: 9, Address: at(9)}}, nil, []string{"f-10", "f-9"}, 1},
		"in any order":       {"requestsPerSecond: 10, minReplicas: 3", []Existing{{ID: 9, Address: at(9)}, {ID: 2, Address: at(2)}}, nil, []string{"f-10", "f-2", "f-9"}, 1},
		"one ends":           {"requestsPerSecond: 10, minReplicas: 1", []Existing{{ID: 3, Address: at(3)}, {ID: 4, Address: at(4), Ending: true}}, nil, []string{"f-3"}, 0},
		"the only one ends":  {"requestsPerSecond: 10, minReplicas: 1", []Existing{{ID: 4, Address: at(4), Ending: true}}, nil, []string{"f-5"}, 1},
		"one ends, unready":  {"requestsPerSecond: 10, minReplicas: 1", []Existing{{ID: 4, Ending: true}}, nil, []string{"f-5"}, 1},
		"more than may be":   {"requestsPerSecond: 10, maxReplicas: 1", []Existing{{ID: 3, Address: at(3)}, {ID: 4}}, nil, []string{"f-3"}, 0},
		"surplus, not ready": {"requestsPerSecond: 10, maxReplicas: 1", []Existing{{ID: 3}, {ID: 4, Address: at(4)}}, nil, []string{"f-4"}, 0},
		"replacement starts": {"requestsPerSecond: 10, minReplicas: 1", []Existing{{ID: 3, Address: at(3), Outdated: true}, {ID: 4}}, nil, []string{"f-3", "f-4"}, 0},
		"no room for more": {"requestsPerSecond: 10, minReplicas: 1, maxReplicas: 1", []Existing{{ID: 3, Address: at(3), Outdated: true}, {ID: 4}}, nil,
			[]string{"f-3", "f-4"}, 0},
		"replacement is ready": {"requestsPerSecond: 10, minReplicas: 1, maxReplicas: 1", []Existing{{ID: 3, Address: at(3), Outdated: true}, {ID: 4, Address: at(4)}}, nil,
			[]string{"f-4"}, 0},
		"unneeded reserve": {"requestsPerSecond: 10, keepShared: 2s", []Existing{{ID: 3, Residency: scaling.Shared, Address: at(3)}}, nil, nil, 0},
		"unloaded":         {"requestsPerSecond: 10, minReplicas: 2", []Existing{{ID: 3, Residency: scaling.Cold, Address: at(3)}}, nil, []string{"f-3", "f-4"}, 1},
		"load of before":   {"requestsPerSecond: 10, window: 10s", []Existing{{ID: 3, Address: at(3)}}, []uint64{9, 15, 15, 15, 15, 15, 15}, []string{"f-3", "f-4"}, 1},
		"load of long ago": {"requestsPerSecond: 10, window: 10s", []Existing{{ID: 3, Address: at(3)}},
			append([]uint64{15, 15, 15, 15, 15, 15, 15}, make([]uint64, 10)...), []string{"f-3"}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			restore(t, test.scaling, test.existing, test.received, 0, func(r *restored) {
				sleep(4 * second)
				if got := r.names(); !slices.Equal(got, test.want) || len(r.creations()) != test.created {
					t.Errorf("%v run, %d were created, want %v, %d", got, len(r.creations()), test.want, test.created)
				}
			})
		})
	}
}

// TestGoOnReplacing: the next process ends the outdated replica once the replacement that the earlier one has started is ready.
func TestGoOnReplacing(t *testing.T) {
	restore(t, "requestsPerSecond: 10, minReplicas: 1, maxReplicas: 1", []Existing{{ID: 3, Address: "f-3:80", Outdated: true}, {ID: 4}}, nil, 0, func(r *restored) {
		sleep(2 * second)
		r.events <- Event{Instance: "f-4", Kind: Ready, Address: "f-4:80"}
		sleep(2 * second)
		if got := r.names(); !slices.Equal(got, []string{"f-4"}) || len(r.creations()) != 0 {
			t.Errorf("%v run, %d were created, want f-4 alone", got, len(r.creations()))
		}
	})
}

func TestRestoreRefuses(t *testing.T) {
	for name, existing := range map[string][]Existing{"zero": {{ID: 0}}, "twice": {{ID: 2}, {ID: 1}, {ID: 2}}} {
		t.Run(name, func(t *testing.T) {
			f, err := New(Config{Gateways: gateway.New(gateway.Config{})}, nil)
			if err != nil {
				t.Fatal(err)
			}
			err = f.Restore(decode(t, "requestsPerSecond: 10", nil), existing, nil)
			if invalid := (*share.FieldError)(nil); !errors.As(err, &invalid) || len(f.Status()) != 0 {
				t.Errorf("error %v, %v", err, f.Status())
			}
		})
	}
}

// TestKeepWhileDraining: a fleet that leaves its replicas behind ends even while one of them has a request, and ends none of
// them.
func TestKeepWhileDraining(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{T: t, memory: &memory{T: t, events: make(chan Event), live: func(int) life { return life{start: second} }, begin: time.Now(),
			running: map[string]chan struct{}{}, busy: map[string]int{}}}
		w.gateway = gateway.New(gateway.Config{Upstream: w.memory})
		var err error
		w.fleet, err = New(Config{Gateways: w.gateway, Platform: w.memory, Log: slog.New(slog.DiscardHandler), KeepReplicas: true}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := w.fleet.Set(decode(t, "minReplicas: 1, requestsPerSecond: 10", nil)); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); w.fleet.Run(ctx) }()
		sleep(2 * second)
		answered := make(chan int)
		go func() { status, _ := w.ask(3 * second); answered <- status }()
		sleep(second)
		w.fleet.Remove(name)
		cancel()
		<-done
		if status := <-answered; status != 200 || len(w.deletions()) != 0 {
			t.Errorf("status %d, deleted at %v", status, w.deletions())
		}
		sleep(time.Minute) // a drain would be over by now
		w.Delete("f-1")
		<-w.memory.events
	})
}
