package fleet

import (
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
	"github.com/gshare-dev/gshare/serving/gateway"
	"github.com/gshare-dev/gshare/serving/rules/scaling"
)

// parking parks replicas after 2 s in reserve.
const parking = "requestsPerSecond: 10, window: 2s, keepShared: 2s"

// parkingFunction returns a function whose replicas stay parked for a minute, as in a cluster.
func parkingFunction(t *testing.T, scaling string) *api.GPUFunction {
	return decode(t, scaling, func(f *api.GPUFunction) { f.Spec.Scaling.KeepWarm = "1m" })
}

func startParking(t *testing.T, scaling string, live func(int) life, test func(w *world)) {
	startObject(t, parkingFunction(t, scaling), live, func(*Fleet) {}, test)
}

// awaitParked waits until the first replica is parked.
func (w *world) awaitParked() {
	w.Helper()
	for range 20 {
		if sleep(second); w.status().Warm == 1 {
			return
		}
	}
	w.Fatalf("%+v: no replica is parked", w.status())
}

// TestParked: a replica that is not needed stays and is parked, and gets the next request. Whatever happens to its server meanwhile is not a failure. It
// ends when its time is over.
func TestParked(t *testing.T) {
	startParking(t, parking, steady, func(w *world) {
		w.ask(ms)
		before := w.status().GPUTime
		w.awaitParked()
		if s := w.status(); s.Hot+s.Shared != 0 || !s.Ready || s.Reason != "Idle" || s.GPUTime < before {
			t.Errorf("parked: %+v", s)
		}
		w.events <- Event{Instance: "f-1", Kind: Starting, Message: "is not ready"}
		sleep(ms)
		if status, took := w.ask(ms); status != 200 || took > second {
			t.Errorf("a request to a parked replica: status %d after %v", status, took)
		}
		if s := w.status(); s.Hot != 1 || s.Warm != 0 || len(w.creations()) != 1 {
			t.Errorf("woken: %+v, %d replicas were created", s, len(w.creations()))
		}
		w.awaitParked()
		sleep(70 * second)
		if s := w.status(); s.Warm != 0 || w.replicas() != 0 || len(w.creations()) != 1 {
			t.Errorf("after its time: %+v, %d replicas run", s, w.replicas())
		}
	})
}

// TestCannotPark: a replica that cannot be parked is ended, and no other replica is parked until the function changes.
func TestCannotPark(t *testing.T) {
	startParking(t, parking, steady, func(w *world) {
		w.ask(ms)
		w.awaitParked()
		w.events <- Event{Instance: "f-1", Kind: CannotPark, Message: "has no way"}
		sleep(5 * second)
		if s := w.status(); s.CannotPark != "replica f-1 has no way" || w.replicas() != 0 {
			t.Errorf("%+v, %d replicas run", s, w.replicas())
		}
		w.ask(ms)
		for range 20 { // the function has learned to keep it for up to eight times keepShared
			if sleep(second); w.status().Warm > 0 {
				t.Fatal("the next one is to be parked")
			}
		}
		if w.replicas() != 0 {
			t.Errorf("%d replicas run", w.replicas())
		}
		set := func(f *api.GPUFunction) string {
			if err := w.fleet.Set(f); err != nil {
				t.Fatal(err)
			}
			return w.status().CannotPark
		}
		if why := set(parkingFunction(t, parking)); why == "" {
			t.Error("it is forgotten though nothing has changed")
		}
		if why := set(parkingFunction(t, parking+", maxReplicas: 3")); why != "" {
			t.Errorf("after a change: %q", why)
		}
	})
}

// TestParkedWithoutRoom: the platform cannot wake a parked replica. If it is needed, another one starts in its place and it is ended, since it would serve
// nothing and hold what the other one may need. If it is only wanted in reserve, it stays parked, and is not raised again and again.
func TestParkedWithoutRoom(t *testing.T) {
	for name, c := range map[string]struct {
		wanted scaling.Residency
		waking bool // the platform reports that it is waking
		want   []string
		warm   int
	}{
		"needed":             {scaling.Hot, false, []string{"f-2"}, 0},
		"needed, is waking":  {scaling.Hot, true, []string{"f-2"}, 0},
		"reserve":            {scaling.Shared, false, []string{"f-1"}, 1},
		"reserve, is waking": {scaling.Shared, true, []string{"f-1"}, 1},
		"parked again":       {scaling.Warm, false, []string{"f-1"}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			startParking(t, parking, steady, func(w *world) {
				w.ask(ms)
				w.awaitParked()
				w.fleet.locked(func() {
					fn := w.fleet.functions[0]
					fn.state.Instances[0].Residency, fn.state.Instances[0].Since = c.wanted, w.fleet.now()
					w.fleet.publish(fn)
				})
				if c.waking {
					w.events <- Event{Instance: "f-1", Kind: Starting, Message: "waits until its server has its memory again"}
				}
				w.events <- Event{Instance: "f-1", Kind: NoRoom, Residency: scaling.Warm, Message: "full"}
				sleep(ms)
				w.fleet.locked(func() {
					if i := w.fleet.instances["f-1"]; i != nil && i.phase == ready && i.Residency != scaling.Warm {
						t.Errorf("it is wanted %v again", i.Residency)
					}
				})
				sleep(1500 * ms)
				if got := w.names(); !slices.Equal(got, c.want) || w.status().Warm != c.warm {
					t.Errorf("%v run, %d parked; want %v, %d", got, w.status().Warm, c.want, c.warm)
				}
			})
		})
	}
}

// TestParkedHost: a host whose replicas are parked, or cannot be woken, has none for its guest's requests. The guest keeps its own replicas until one of
// the host is ready.
func TestParkedHost(t *testing.T) {
	object := parkingFunction(t, "requestsPerSecond: 10, window: 2s, keepShared: 2s")
	never := func(attempt int) life { // except for the first replica of each
		if attempt < 2 {
			return life{start: second, ends: second}
		}
		return life{start: -1, ends: second}
	}
	startObject(t, object, never, func(f *Fleet) {
		other := object.DeepCopy()
		other.Name = guest.Name
		if err := f.Set(other); err != nil {
			t.Fatal(err)
		}
	}, func(w *world) {
		w.follow()
		w.ask(ms)
		for range 20 {
			if sleep(second); w.status().Warm == 1 {
				break
			}
		}
		var load sync.WaitGroup
		lost := 0
		load.Go(func() { lost = w.loadGuest(5, 5*time.Minute) })
		sleep(20 * second) // the guest has its own replicas
		w.fleet.SetHost(guest, name, gateway.FunctionName{})
		sleep(1500 * ms) // the host is being woken
		w.events <- Event{Instance: "f-1", Kind: NoRoom, Residency: scaling.Warm, Message: "full"}
		load.Wait()
		if s, _ := w.fleet.StatusOf(guest); s.Host != (gateway.FunctionName{}) || lost > 0 {
			t.Errorf("host %q, %d requests lost", s.Host.Name, lost)
		}
	})
}

// TestParkedGuest: if a guest's own replicas are parked, none of them serves. Its requests go to the host at once, and wake none of the parked replicas.
func TestParkedGuest(t *testing.T) {
	object := parkingFunction(t, "minReplicas: 0, requestsPerSecond: 10, window: 2s, keepShared: 2s")
	startObject(t, object, steady, func(f *Fleet) {
		other := object.DeepCopy()
		other.Name = guest.Name
		if err := f.Set(other); err != nil {
			t.Fatal(err)
		}
	}, func(w *world) {
		w.follow()
		w.loadGuest(1, second)
		parked := func() bool { s, _ := w.fleet.StatusOf(guest); return s.Warm == 1 }
		for range 20 {
			if sleep(second); parked() {
				break
			}
		}
		w.fleet.SetHost(guest, name, gateway.FunctionName{})
		sleep(3 * second)
		ended := make(chan int)
		go func() { ended <- w.loadGuest(5, 10*second) }()
		woken := 0
		for range 20 {
			if sleep(500 * ms); !parked() {
				woken++
			}
		}
		if failed := <-ended; failed > 0 || woken > 0 || w.of("f") == 0 {
			t.Errorf("%d failed, the guest's own is woken for %d half seconds, %d replicas of the host", failed, woken, w.of("f"))
		}
	})
}

// TestParkedFails: a parked replica that fails is not started again, whatever the platform does.
func TestParkedFails(t *testing.T) {
	for _, kind := range []EventKind{Restarting, Failed} {
		t.Run(string(kind), func(t *testing.T) {
			live := func(n int) life {
				if n == 0 && kind == Failed {
					return life{start: second, ends: second, dies: 30 * second}
				}
				return life{start: second, ends: second}
			}
			startParking(t, parking, live, func(w *world) {
				w.ask(ms)
				w.awaitParked()
				if kind == Restarting {
					w.events <- Event{Instance: "f-1", Kind: kind, Message: "killed"}
				}
				sleep(35 * second)
				if s := w.status(); s.Warm != 0 || s.Failures != 1 || w.replicas() != 0 || len(w.creations()) != 1 {
					t.Errorf("%+v, %d replicas run", s, w.replicas())
				}
				if status, _ := w.ask(ms); status != 200 {
					t.Errorf("the next request: status %d", status)
				}
			})
		})
	}
}

// TestGiveUpParks: a replica in reserve is parked when its memory is needed, and ended if that was not enough.
func TestGiveUpParks(t *testing.T) {
	startParking(t, "requestsPerSecond: 10, window: 2s, keepShared: 1m", steady, func(w *world) {
		w.ask(ms)
		if sleep(10 * second); w.status().Shared != 1 {
			t.Fatalf("%+v: none is in reserve", w.status())
		}
		for at, want := range []Gift{Memory, All, Nothing} {
			if got := w.fleet.GiveUp("f-1", "test"); got != want {
				t.Errorf("given up for the %d. time: %v, want %v", at+1, got, want)
			}
		}
		if sleep(5 * second); w.replicas() != 0 {
			t.Errorf("%d replicas run", w.replicas())
		}
	})
}

// TestRestoreParked: a replica that an earlier process parked is restored as parked.
func TestRestoreParked(t *testing.T) {
	f, err := New(Config{Gateways: gateway.New(gateway.Config{}), Platform: &memory{}, Log: slog.New(slog.DiscardHandler)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Restore(parkingFunction(t, parking), []Existing{{ID: 3, Residency: scaling.Warm}}, nil); err != nil {
		t.Fatal(err)
	}
	if s := f.Status()[0]; s.Warm != 1 || s.Hot+s.Shared != 0 {
		t.Errorf("%+v", s)
	}
	if spares := f.Spares(); len(spares) != 1 || spares[0].Instance != "f-3" {
		t.Errorf("spares %+v", spares)
	}
}

// TestWakingStays: when the time of one parked replica is over, that one ends, and not another one that is being woken.
func TestWakingStays(t *testing.T) {
	f := parkingFunction(t, "requestsPerSecond: 10, maxReplicas: 3, window: 4s, keepShared: 1s")
	startShares(t, f, []Existing{{ID: 1, Residency: scaling.Warm}, {ID: 2, Residency: scaling.Warm}}, func(s *shares) {
		s.load(5, 2)
		s.events <- Event{Instance: "f-1", Kind: Starting, Message: "waits until its server has its memory again"}
		s.load(5, 70)
		if got := s.names(); !slices.Equal(got, []string{"f-1"}) {
			t.Errorf("%v run, want that which is being woken", got)
		}
		if state := s.fleet.Status()[0]; state.Reason != "Starting" || state.Replicas["ready"] != 0 {
			t.Errorf("%+v", state)
		}
	})
}

// TestParkNoMore: parked replicas are ended once their function no longer asks for parking.
func TestParkNoMore(t *testing.T) {
	startParking(t, parking, steady, func(w *world) {
		w.ask(ms)
		w.awaitParked()
		if err := w.fleet.Set(decode(t, parking, nil)); err != nil {
			t.Fatal(err)
		}
		if sleep(3 * second); w.replicas() != 0 || len(w.creations()) != 1 {
			t.Errorf("%d replicas run, %d were created", w.replicas(), len(w.creations()))
		}
	})
}
