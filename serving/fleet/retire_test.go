package fleet

import (
	"sync"
	"testing"
	"time"

	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
)

// TestRetire: a replica that the load no longer needs answers its stream, which takes longer than its grace period of 5 s, unless somebody needs its share.
func TestRetire(t *testing.T) {
	for name, c := range map[string]struct {
		takes   time.Duration
		giveUp  bool
		status  int
		deleted time.Duration // after the stream began, at least
	}{
		"nobody needs its share":   {40 * second, false, 200, 40 * second},
		"somebody needs it":        {40 * second, true, 502, 0}, // its answer is cut
		"a stream that is endless": {20 * time.Minute, false, 504, longestRequest},
	} {
		t.Run(name, func(t *testing.T) {
			start(t, "requestsPerSecond: 10, maxReplicas: 2, concurrency: 2, window: 2s, keepShared: 1s", func(int) life { return life{ends: second} }, func(w *world) {
				w.load(20, 2*second, 10*ms)
				begin := time.Since(w.begin)
				go w.ask(4 * second) // with the next one, it fills the first replica, and it is there when the other one begins to drain
				go w.ask(3 * second)
				sleep(ms)
				status := make(chan int, 1)
				go func() { s, _ := w.ask(c.takes); status <- s }()
				sleep(8 * second)
				spares := w.fleet.Spares()
				if w.status().Replicas["draining"] != 1 || len(spares) != 1 || spares[0].Instance != "f-2" {
					t.Fatalf("the test shows nothing: %+v, %v", w.status(), spares)
				}
				if c.giveUp && w.fleet.GiveUp("f-2", "another one needs its share") != All {
					t.Error("it is not given up")
				}
				if got := <-status; got != c.status {
					t.Errorf("status %d, want %d", got, c.status)
				}
				sleep(ms)
				if at := w.deletions(); len(at) != 1 || at[0]-begin < c.deleted || c.giveUp && at[0]-begin > 14*second {
					t.Errorf("deleted at %v, began at %v", at, begin)
				}
			})
		})
	}
}

// TestMakeRoom: a replica of another function that waits for its share gets that of one that nobody needs, which has its grace period of 5 s and a second to
// end, even if that one is in reserve for long or answers a stream of minutes.
func TestMakeRoom(t *testing.T) {
	for name, c := range map[string]struct {
		keep   string
		stream time.Duration
	}{
		"draining":   {"1s", 9 * time.Minute},
		"in reserve": {"10m", 3 * second},
	} {
		t.Run(name, func(t *testing.T) {
			lives := func(int) life { return life{shares: 2, ends: second} }
			start(t, "requestsPerSecond: 10, maxReplicas: 2, concurrency: 2, window: 2s, keepShared: "+c.keep, lives, func(w *world) {
				w.load(20, 2*second, 10*ms)
				var wait sync.WaitGroup
				for _, takes := range []time.Duration{c.stream, 3 * second, c.stream} { // two fill the first replica
					wait.Go(func() { w.ask(takes) })
					sleep(ms)
				}
				sleep(30 * second)
				if spares := w.fleet.Spares(); w.count() != 2 || len(spares) == 0 {
					t.Errorf("the test shows nothing: %+v, %v", w.status(), spares)
				}
				other := decode(t, "minReplicas: 1, requestsPerSecond: 10", func(f *api.GPUFunction) { f.Name = "g" })
				if err := w.fleet.Set(other); err != nil {
					t.Fatal(err)
				}
				sleep(10 * second)
				all := w.fleet.Status()
				if len(all) != 2 || all[1].Replicas["ready"] != 1 || all[0].Replicas["ready"] > 1 {
					t.Errorf("%+v", all)
				}
				wait.Wait()
			})
		})
	}
}

// TestReplaceLong: a replica that has been replaced answers its stream of minutes, and the next one is replaced meanwhile.
func TestReplaceLong(t *testing.T) {
	start(t, "minReplicas: 2, requestsPerSecond: 10, keepShared: 1s", func(int) life { return life{ends: second} }, func(w *world) {
		status := make(chan int, 2)
		for range 2 {
			go func() { s, _ := w.ask(5 * time.Minute); status <- s }()
		}
		sleep(second)
		if err := w.fleet.Set(decode(t, "minReplicas: 2, requestsPerSecond: 10, keepShared: 1s", otherShare)); err != nil {
			t.Fatal(err)
		}
		sleep(20 * second)
		if s := w.status(); s.Replicas["draining"] != 2 || s.Replicas["ready"] != 2 {
			t.Errorf("%+v", s)
		}
		if a, b := <-status, <-status; a != 200 || b != 200 || w.brokenRequests() > 0 {
			t.Errorf("status %d and %d, %d broken", a, b, w.brokenRequests())
		}
	})
}

// TestIdleFirst: of two replicas, the one without requests ends, although it is the older one.
func TestIdleFirst(t *testing.T) {
	start(t, "requestsPerSecond: 10, maxReplicas: 2, concurrency: 2, window: 2s, keepShared: 1s", func(int) life { return life{ends: second} }, func(w *world) {
		w.load(20, 2*second, 10*ms)
		for range 2 { // they fill the first replica
			go w.ask(2 * second)
		}
		sleep(ms)
		status := make(chan int, 1)
		go func() { s, _ := w.ask(40 * second); status <- s }()
		sleep(15 * second)
		if s := w.status(); w.running["f-2"] == nil || w.replicas() != 1 || s.Replicas["ready"] != 1 {
			w.Errorf("%v are left: %+v, want f-2", w.running, s)
		}
		if s := <-status; s != 200 {
			w.Errorf("status %d", s)
		}
	})
}
