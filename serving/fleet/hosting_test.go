package fleet

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
	"github.com/gshare-dev/gshare/serving/gateway"
)

var guest = gateway.FunctionName{Namespace: "default", Name: "g"}

// of returns how many replicas of a function are running.
func (m *memory) of(function string) (n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for name := range m.running {
		if strings.HasPrefix(name, function+"-") {
			n++
		}
	}
	return n
}

// loadGuest is like load, for the guest.
func (w *world) loadGuest(rate float64, length time.Duration) int {
	return w.loadOf(guest.Name, "10ms", rate, length)
}

// loadOf is like load, for any function and requests that take the given time. It returns the number of lost requests.
func (w *world) loadOf(function, work string, rate float64, length time.Duration) (failed int) {
	var wait sync.WaitGroup
	var mu sync.Mutex
	for range int(rate * length.Seconds()) {
		wait.Go(func() {
			r := &http.Request{Method: http.MethodPost, Host: function, URL: &url.URL{Path: "/"}, RequestURI: "/", Header: http.Header{"Work": {work}}, Body: http.NoBody}
			answer := httptest.NewRecorder()
			w.gateway.ServeHTTP(answer, r)
			if answer.Code != http.StatusOK {
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

// setHost sets the guest's host at the fleet and at the gateway, in the given order.
func (w *world) setHost(host gateway.FunctionName, fleetFirst bool) {
	w.Helper()
	if fleetFirst {
		w.fleet.SetHost(guest, host, gateway.FunctionName{})
		sleep(3 * second) // ticks
	}
	if err := w.gateway.SetHost(guest, host); err != nil {
		w.Fatal(err)
	}
	if !fleetFirst {
		w.fleet.SetHost(guest, host, gateway.FunctionName{})
	}
}

// follow tells the gateway every second which hosts the fleet currently lets requests go to, as the status of objects does.
func (w *world) follow() {
	ctx, stop := context.WithCancel(w.Context())
	w.Cleanup(stop)
	go func() {
		for ctx.Err() == nil {
			for _, s := range w.fleet.Status() {
				if err := w.gateway.SetHost(s.Name, s.Host); err != nil {
					w.Error(err)
				}
			}
			select {
			case <-time.After(second):
			case <-ctx.Done():
			}
		}
	}()
}

// withGuest runs a test with a function and another one with the same template, which can become its guest.
func withGuest(t *testing.T, scaling string, change func(*api.GPUFunction), test func(w *world)) {
	object := decode(t, scaling, nil)
	startObject(t, object, steady, func(f *Fleet) {
		other := object.DeepCopy()
		other.Name = guest.Name
		change(other)
		if err := f.Set(other); err != nil {
			t.Fatal(err)
		}
	}, test)
}

// TestGuestHasNoReplicas checks that a host scales with its guest's load while the guest has no replicas, even if the guest has a minimum, and that no request
// is lost when the host is set and unset.
func TestGuestHasNoReplicas(t *testing.T) {
	for name, fleetFirst := range map[string]bool{"gateway first": false, "fleet first": true} {
		t.Run(name, func(t *testing.T) {
			withGuest(t, "minReplicas: 1, requestsPerSecond: 10, keepShared: 10s, window: 20s, scaleOutVotes: 10, scaleInVotes: 15", func(*api.GPUFunction) {}, func(w *world) {
				check := func(when string, host, own int) {
					w.Helper()
					if h, g := w.of("f"), w.of("g"); h != host || g != own {
						w.Errorf("%s: %d replicas of the host and %d of the guest, want %d and %d", when, h, g, host, own)
					}
				}
				during := func(change func()) {
					w.Helper()
					ended := make(chan int)
					go func() { ended <- w.loadGuest(25, 5*time.Minute) }()
					sleep(time.Second)
					change()
					if failed := <-ended; failed != 0 {
						w.Errorf("%d requests are lost", failed)
					}
				}
				sleep(10 * second)
				check("at first", 1, 1)
				during(func() {
					w.setHost(gateway.FunctionName{Namespace: "default", Name: "f"}, fleetFirst)
					sleep(4 * time.Minute)
					check("hosted", 3, 0)
				})
				sleep(5 * time.Minute)
				check("idle", 1, 0)
				during(func() { w.setHost(gateway.FunctionName{}, fleetFirst); sleep(4 * time.Minute); check("alone", 1, 3) })
				sleep(5 * time.Minute)
				check("at the end", 1, 1)
				if n := w.brokenRequests(); n != 0 {
					w.Errorf("%d requests had a replica that was ended", n)
				}
			})
		})
	}
}

// TestGuestWakesHost checks that if a host has no replica, a request to its guest starts one of the host and none of the guest.
func TestGuestWakesHost(t *testing.T) {
	withGuest(t, "minReplicas: 0, requestsPerSecond: 10", func(*api.GPUFunction) {}, func(w *world) {
		w.setHost(name, false)
		sleep(5500 * ms)
		if failed := w.loadGuest(1, time.Second); failed != 0 || w.of("f") != 1 || w.of("g") != 0 {
			w.Errorf("%d failed; %d replicas of the host, %d of the guest", failed, w.of("f"), w.of("g"))
		}
		if at := w.creations()[0]; at >= 6*second {
			w.Errorf("started after %v, want it at once", at)
		}
	})
}

// TestHeavyGuest checks that a guest with much more load than its host keeps its replicas until the host has enough for both, and that the reverse holds on
// the way back. Since one replica is not enough for the load, requests would otherwise be lost.
func TestHeavyGuest(t *testing.T) {
	withGuest(t, "minReplicas: 1, requestsPerSecond: 10, keepShared: 10s, window: 20s, scaleOutVotes: 10, scaleInVotes: 15", func(*api.GPUFunction) {}, func(w *world) {
		w.follow()
		sleep(10 * second)
		var loads sync.WaitGroup
		for function, rate := range map[string]float64{"f": 4, "g": 50} {
			loads.Go(func() { w.loadOf(function, "80ms", rate, 8*time.Minute) })
		}
		lost := func() (n uint64) {
			for _, function := range []gateway.FunctionName{name, guest} {
				l := w.gateway.Load(function)
				n += l.Refused + l.Failed + l.Gone
			}
			return n
		}
		is := func(when string, host gateway.FunctionName, f, g int) {
			w.Helper()
			if s, _ := w.fleet.StatusOf(guest); s.Host != host || min(w.of("f"), 6) != f || min(w.of("g"), 5) != g { // a trend may add one
				w.Errorf("%s: host %q, %d replicas of f and %d of g, want %q, %d and %d", when, s.Host.Name, w.of("f"), w.of("g"), host.Name, f, g)
			}
		}
		none := gateway.FunctionName{}
		sleep(time.Minute) // some requests are lost until there are enough replicas
		before := lost()
		w.fleet.SetHost(guest, name, none)
		sleep(14 * second)
		is("at first", none, 6, 5)
		sleep(2 * time.Minute)
		is("hosted", name, 6, 0)
		w.fleet.SetHost(guest, none, none)
		sleep(14 * second)
		is("at the end", name, 6, 5)
		sleep(2 * time.Minute)
		is("by itself", none, 1, 5)
		loads.Wait()
		if n := lost() - before; n != 0 || before == 0 {
			w.Errorf("%d requests are lost, and %d at first, when one replica got them all", n, before)
		}
	})
}

// TestHostWithoutRoom checks that after some time a guest moves even to a host that gets no more replicas, since the guest's own replicas may be what takes up
// the room.
func TestHostWithoutRoom(t *testing.T) {
	object := decode(t, "minReplicas: 1, requestsPerSecond: 10, keepShared: 10s", nil)
	full := func(attempt int) life {
		if attempt < 2 {
			return life{start: 3 * second, ends: second}
		}
		return life{start: -1, ends: second}
	}
	startObject(t, object, full, func(f *Fleet) {
		other := object.DeepCopy()
		other.Name = guest.Name
		if err := f.Set(other); err != nil {
			t.Fatal(err)
		}
	}, func(w *world) {
		w.follow()
		sleep(10 * second)
		var loads sync.WaitGroup
		loads.Go(func() { w.loadOf("f", "10ms", 7, 5*time.Minute) })
		loads.Go(func() { w.loadGuest(8, 5*time.Minute) })
		w.fleet.SetHost(guest, name, gateway.FunctionName{})
		for _, look := range []struct {
			after time.Duration
			host  gateway.FunctionName
			own   int
		}{{patience - 5*second, gateway.FunctionName{}, 1}, {2 * time.Minute, name, 0}} {
			sleep(look.after)
			if s, _ := w.fleet.StatusOf(guest); s.Host != look.host || w.of("g") != look.own {
				w.Errorf("after %v more: host %q, %d replicas, want %q and %d", look.after, s.Host.Name, w.of("g"), look.host.Name, look.own)
			}
		}
		loads.Wait()
	})
}

// TestHostOfEarlierFleet checks that a new fleet continues with the host that the gateways know, whether the host is to stay or to be unset.
func TestHostOfEarlierFleet(t *testing.T) {
	none := gateway.FunctionName{}
	for name, test := range map[string]struct{ host, before, at, later gateway.FunctionName }{
		"stays":       {name, name, name, name},
		"ends":        {none, name, name, none},
		"begins":      {name, none, none, name},
		"none":        {none, none, none, none},
		"another one": {name, gateway.FunctionName{Namespace: "default", Name: "x"}, none, name},
		"one is gone": {none, gateway.FunctionName{Namespace: "default", Name: "x"}, none, none},
	} {
		t.Run(name, func(t *testing.T) {
			withGuest(t, "minReplicas: 1, requestsPerSecond: 10", func(*api.GPUFunction) {}, func(w *world) {
				sleep(10 * second)
				w.fleet.SetHost(guest, test.host, test.before)
				sleep(2 * second)
				if s, _ := w.fleet.StatusOf(guest); s.Host != test.at {
					w.Errorf("at first: host %q, want %q", s.Host.Name, test.at.Name)
				}
				sleep(5 * time.Minute)
				if s, _ := w.fleet.StatusOf(guest); s.Host != test.later {
					w.Errorf("later: host %q, want %q", s.Host.Name, test.later.Name)
				}
			})
		})
	}
}

// TestHostAndGuestSwap checks that no request to either function is lost when guest and host swap roles, with the guest hosted by nobody in between, however
// soon the second change follows the first.
func TestHostAndGuestSwap(t *testing.T) {
	for name, between := range map[string]time.Duration{"at once": 0, "before it is ready": second, "a period of the planner": 5 * second, "later": 2 * time.Minute} {
		t.Run(name, func(t *testing.T) {
			withGuest(t, "minReplicas: 1, requestsPerSecond: 10, keepShared: 10s, window: 20s, scaleOutVotes: 10, scaleInVotes: 15", func(*api.GPUFunction) {}, func(w *world) {
				w.follow()
				serve := func(function, host gateway.FunctionName) { w.fleet.SetHost(function, host, gateway.FunctionName{}) }
				first := gateway.FunctionName{Namespace: "default", Name: "f"}
				sleep(10 * second)
				lost := make(chan int)
				for _, function := range []string{"f", "g"} {
					go func() { lost <- w.loadOf(function, "10ms", 12, 8*time.Minute) }()
				}
				sleep(2 * time.Minute)
				serve(guest, first)
				sleep(2 * time.Minute)
				if f, g := w.of("f"), w.of("g"); f != 3 || g != 0 {
					w.Errorf("%d replicas of the host and %d of the guest, want 3 and 0", f, g)
				}
				serve(guest, gateway.FunctionName{})
				sleep(between)
				serve(first, guest)
				sleep(2 * time.Minute)
				if f, g := w.of("f"), w.of("g"); f != 0 || g != 3 {
					w.Errorf("swapped: %d replicas of the guest and %d of the host, want 0 and 3", f, g)
				}
				if n := <-lost + <-lost; n != 0 {
					w.Errorf("%d requests are lost", n)
				}
				if n := w.brokenRequests(); n != 0 {
					w.Errorf("%d requests had a replica that was ended", n)
				}
			})
		})
	}
}

// TestUnlikeGuest checks that the fleet does not end the replicas of a function whose requests its host cannot serve.
func TestUnlikeGuest(t *testing.T) {
	other := func(f *api.GPUFunction) { f.Spec.Template.Spec.Containers[0].Image = "example.com/other" }
	withGuest(t, "minReplicas: 1, requestsPerSecond: 10", other, func(w *world) {
		w.fleet.SetHost(guest, name, gateway.FunctionName{})
		sleep(30 * time.Minute)
		if w.of("f") != 1 || w.of("g") != 1 {
			w.Errorf("%d replicas of the host, %d of the guest, want one of each", w.of("f"), w.of("g"))
		}
	})
}

// TestHostIsSetLater: a new fleet that does not know the host that the gateways know starts no replicas of the guest, but only for a limited time.
func TestHostIsSetLater(t *testing.T) {
	start(t, "minReplicas: 1, requestsPerSecond: 10", steady, func(w *world) {
		w.stop()
		var err error
		if w.fleet, err = New(Config{Gateways: w.gateway, Platform: w.memory, Log: slog.New(slog.DiscardHandler)}, nil); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(w.Context())
		done := make(chan struct{})
		go func() { defer close(done); w.fleet.Run(ctx) }()
		w.stop = func() { cancel(); <-done }
		began := len(w.creations())
		other := gateway.FunctionName{Namespace: "default", Name: "other"}
		if err := w.fleet.Set(decode(t, "minReplicas: 1, requestsPerSecond: 10", nil)); err != nil {
			t.Fatal(err)
		}
		w.fleet.SetHost(name, other, other)
		go w.ask(ms)
		if sleep(10 * second); len(w.creations()) > began {
			t.Error("it has got a replica though its host may only not be known yet")
		}
		if sleep(10 * second); len(w.creations()) != began+1 {
			t.Errorf("%d replicas were created, want one: there is no host", len(w.creations())-began)
		}
	})
}
