package fleet

import (
	"testing"
	"time"
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
		"somebody needs it":        {40 * second, true, 200, 0}, // the gateway asks the other one, as no part of the answer has come
		"a stream that is endless": {20 * time.Minute, false, 504, longestRequest},
	} {
		t.Run(name, func(t *testing.T) {
			start(t, "requestsPerSecond: 10, maxReplicas: 2, concurrency: 2, window: 2s, keepShared: 1s", func(int) life { return life{ends: second} }, func(w *world) {
				w.load(20, 2*second, 10*ms)
				begin := time.Since(w.begin)
				for range 2 { // they fill the first replica, which is idle when the other one goes
					go w.ask(3 * second)
				}
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
