package fleet

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// refused sends a request and checks that it is refused after the given time with the reason, and with the number of seconds until the next try.
func (w *world) refused(when string, took time.Duration, retryAfter string) {
	w.Helper()
	begin := time.Now()
	r := httptest.NewRequest(http.MethodPost, "http://f/", nil)
	r.Header.Set("Work", "0s")
	answer := httptest.NewRecorder()
	w.gateway.ServeHTTP(answer, r)
	got := time.Since(begin)
	if answer.Code != 503 || got != took || answer.Header().Get("Retry-After") != retryAfter || answer.Body.String() != `{"error":"no replica serves the function: `+w.status().Message+`"}` {
		w.Errorf("%s: %d after %v, %v, %s; the table says %s", when, answer.Code, got, answer.Header(), answer.Body, w.status().Message)
	}
}

// dying is a replica that never gets ready and ends soon.
var dying = life{start: -1, dies: 200 * ms}

// TestRefusedWhileBackingOff: a request waits while a replica is starting, even one that has failed before, and is refused when the back-off
// begins or if it has begun, unless the back-off ends before its deadline. When the replica starts again, requests wait again.
func TestRefusedWhileBackingOff(t *testing.T) {
	lives := []life{dying, dying, dying, dying, {start: 3 * second}}
	start(t, "requestsPerSecond: 10, minReplicas: 1", func(attempt int) life { return lives[min(attempt, 4)] }, func(w *world) {
		w.refused("held", 400*ms, "1") // starts at 0 and 200 ms
		w.refused("new", 0, "1")
		sleep(time.Until(w.begin.Add(1100 * ms))) // third start at 1 s
		w.refused("held again", 100*ms, "2")
		sleep(time.Until(w.begin.Add(2700 * ms)))
		w.refused("later", 500*ms, "4")            // waits for the start at 3 s, which is before its deadline, and is refused as that fails, too
		sleep(time.Until(w.begin.Add(8 * second))) // starts at 3 and 7 s
		if status, took := w.ask(0); status != 200 || took != 2*second {
			w.Errorf("when it starts: status %d after %v, created at %v", status, took, w.creations())
		}
	})
}

// TestOthersServe: requests are not refused while another replica is ready or starting.
func TestOthersServe(t *testing.T) {
	for name, test := range map[string]struct {
		start, want time.Duration
	}{"ready": {0, 0}, "starting": {20 * second, 10 * second}} {
		t.Run(name, func(t *testing.T) {
			lives := []life{{start: test.start}, dying}
			start(t, "requestsPerSecond: 10, minReplicas: 2", func(attempt int) life { return lives[min(attempt, 1)] }, func(w *world) {
				sleep(10 * second)
				if s := w.status(); s.Replicas["failed"] != 1 {
					w.Errorf("the test shows nothing: %+v", s)
				}
				if status, took := w.ask(0); status != 200 || took != test.want {
					w.Errorf("status %d after %v", status, took)
				}
			})
		})
	}
}

// TestRefusedBesideOneThatEnds: requests do not wait because of a replica that is ending.
func TestRefusedBesideOneThatEnds(t *testing.T) {
	lives := []life{{start: second, ends: time.Hour}, dying}
	start(t, "requestsPerSecond: 10, window: 2s, keepShared: 1s", func(attempt int) life { return lives[min(attempt, 1)] }, func(w *world) {
		w.ask(0)
		for len(w.deletions()) == 0 {
			sleep(100 * ms)
		}
		w.refused("beside it", 400*ms, "1")
		if s := w.status(); s.Replicas["stopping"] != 1 {
			w.Errorf("the test shows nothing: %+v", s)
		}
	})
}

// TestRefusedRequestsAreLoad: as long as requests come, the function keeps trying to start a replica, even if all of them are refused. Without
// requests it gives up, and the next request starts a replica and waits for it.
func TestRefusedRequestsAreLoad(t *testing.T) {
	start(t, "requestsPerSecond: 10, window: 4s, keepShared: 6s", func(int) life { return dying }, func(w *world) {
		if failed := w.load(2, 10*time.Minute, 0); failed != 1200 {
			w.Errorf("%d of 1200 requests were refused", failed)
		}
		created := w.creations()
		if n := len(created); n < 12 || time.Since(w.begin)-created[n-1] > maxPause+second {
			w.Errorf("created at %v", created)
		}
		if l := w.gateway.Load(name); l.Refused != 1200 || l.Received != 1200 {
			w.Errorf("%+v", l)
		}
		sleep(20 * second)
		before := len(w.creations())
		sleep(20 * time.Minute)
		if s := w.status(); len(w.creations()) != before || s.Reason != "Idle" {
			w.Errorf("without load: created at %v, %+v", w.creations()[before:], s)
		}
		w.refused("the first one", 400*ms, "1")
		if len(w.creations()) != before+2 {
			w.Errorf("created at %v", w.creations()[before:])
		}
	})
}
