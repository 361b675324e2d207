package fleet

import (
	"log/slog"
	"testing"

	"github.com/gshare-dev/gshare/serving/gateway"
	api "github.com/gshare-dev/gshare/vgpu/api/serving/v1alpha1"
	"github.com/gshare-dev/gshare/vgpu/scaling"
)

// parking has replicas parked after 2 s in reserve.
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

// TestParked: a replica that is not needed stays, parked, and gets the next request; what happens to its server meanwhile is no failure. After its time it
// is ended.
func TestParked(t *testing.T) {
	startParking(t, parking, steady, func(w *world) {
		w.ask(ms)
		w.awaitParked()
		if s := w.status(); s.Hot+s.Shared != 0 || !s.Ready || s.Reason != "Idle" {
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

// TestCannotPark: a replica that cannot be parked is ended, and no later one is to be parked until the function changes.
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
		for range 10 {
			if sleep(second); w.status().Warm > 0 {
				t.Fatal("the next one is to be parked")
			}
		}
		if w.replicas() != 0 {
			t.Errorf("%d replicas run", w.replicas())
		}
		if err := w.fleet.Set(parkingFunction(t, parking)); err != nil {
			t.Fatal(err)
		}
		if s := w.status(); s.CannotPark != "" {
			t.Errorf("after a change: %q", s.CannotPark)
		}
	})
}

// TestParkedFails: a parked replica that fails is not started again, whatever its platform does.
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

// TestGiveUpParks: a replica in reserve is parked when its memory is needed, and ended when that was not enough.
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

// TestRestoreParked: a replica that an earlier process has parked is parked.
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
