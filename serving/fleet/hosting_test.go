package fleet

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gshare-dev/gshare/serving/gateway"
	api "github.com/gshare-dev/gshare/vgpu/api/serving/v1alpha1"
)

var guest = gateway.FunctionName{Namespace: "default", Name: "g"}

// of returns how many replicas of a function run.
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

// loadGuest is load of the guest.
func (w *world) loadGuest(rate float64, length time.Duration) int {
	return w.loadOf(guest.Name, rate, length)
}

// loadOf is load of a function. It returns the number of requests that are lost.
func (w *world) loadOf(function string, rate float64, length time.Duration) (failed int) {
	var wait sync.WaitGroup
	var mu sync.Mutex
	for range int(rate * length.Seconds()) {
		wait.Go(func() {
			r := &http.Request{Method: http.MethodPost, Host: function, URL: &url.URL{Path: "/"}, RequestURI: "/", Header: http.Header{"Work": {"10ms"}}, Body: http.NoBody}
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

// setHost tells the gateway and the fleet the guest's host, in this order or the other.
func (w *world) setHost(host gateway.FunctionName, fleetFirst bool) {
	w.Helper()
	if fleetFirst {
		w.fleet.SetHost(guest, host)
		sleep(3 * second) // ticks
	}
	if err := w.gateway.SetHost(guest, host); err != nil {
		w.Fatal(err)
	}
	if !fleetFirst {
		w.fleet.SetHost(guest, host)
	}
}

// withGuest runs a test with a function and one of the same template, which is to be its guest.
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

// TestGuestHasNoReplicas checks that a host scales with its guest's load while the guest has no replicas, although it has a minimum, and that no request
// is lost as the host comes and goes.
func TestGuestHasNoReplicas(t *testing.T) {
	for name, fleetFirst := range map[string]bool{"gateway first": false, "fleet first": true} {
		t.Run(name, func(t *testing.T) {
			withGuest(t, "minReplicas: 1, requestsPerSecond: 10, keepShared: 10s", func(*api.GPUFunction) {}, func(w *world) {
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

// TestGuestWakesHost checks that a request to a guest starts a replica of its host, and none of the guest, if there is none.
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

// TestHostAndGuestSwap checks that no request of either is lost when the guest becomes the host and the host its guest, by way of the guest by itself, however
// soon the one follows the other.
func TestHostAndGuestSwap(t *testing.T) {
	for name, between := range map[string]time.Duration{"at once": 0, "before it is ready": second, "a period of the planner": 5 * second, "later": 2 * time.Minute} {
		t.Run(name, func(t *testing.T) {
			withGuest(t, "minReplicas: 1, requestsPerSecond: 10, keepShared: 10s", func(*api.GPUFunction) {}, func(w *world) {
				serve := func(function, host gateway.FunctionName) {
					w.Helper()
					if err := w.gateway.SetHost(function, host); err != nil {
						w.Fatal(err)
					}
					w.fleet.SetHost(function, host)
				}
				first := gateway.FunctionName{Namespace: "default", Name: "f"}
				sleep(10 * second)
				lost := make(chan int)
				for _, function := range []string{"f", "g"} {
					go func() { lost <- w.loadOf(function, 12, 8*time.Minute) }()
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

// TestUnlikeGuest checks that the fleet does not take the replicas of a function that its host may not serve.
func TestUnlikeGuest(t *testing.T) {
	other := func(f *api.GPUFunction) { f.Spec.Template.Spec.Containers[0].Image = "example.com/other" }
	withGuest(t, "minReplicas: 1, requestsPerSecond: 10", other, func(w *world) {
		w.fleet.SetHost(guest, name)
		sleep(30 * time.Minute)
		if w.of("f") != 1 || w.of("g") != 1 {
			w.Errorf("%d replicas of the host, %d of the guest, want one of each", w.of("f"), w.of("g"))
		}
	})
}
