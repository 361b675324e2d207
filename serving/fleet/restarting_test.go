package fleet

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestRestartedByPlatform: while the only replica has failed and the platform is about to restart it, requests are refused at once, and the
// replica is not created a second time.
func TestRestartedByPlatform(t *testing.T) {
	start(t, "minReplicas: 1, requestsPerSecond: 10", func(int) life { return life{start: time.Hour} }, func(w *world) {
		send := func(k EventKind, message string) {
			w.events <- Event{Instance: "f-1", Kind: k, Message: message, Address: "f-1:80"}
			synctest.Wait()
		}
		for range 3 {
			send(Restarting, "exited with code 3")
			if status, took := w.ask(ms); status != 503 || took != 0 {
				t.Errorf("status %d after %v, want 503 at once", status, took)
			}
			s := w.status()
			if s.Reason != "Failing" || s.Ready || !strings.Contains(s.Message, "exited with code 3") || s.Replicas[string(restarting)] != 1 {
				t.Errorf("%+v", s)
			}
			time.Sleep(10 * second)
			send(Starting, "waits for its probe")
		}
		if s := w.status(); s.Failures != 3 || s.Starts != 1 || s.Reason != "Starting" {
			t.Errorf("%+v", s)
		}
		send(Ready, "")
		if status, _ := w.ask(ms); status != 200 {
			t.Errorf("status %d of a replica that is ready", status)
		}
		send(Restarting, "exited with code 4")
		if status, _ := w.ask(ms); status != 503 {
			t.Errorf("status %d, want 503: its only replica has failed", status)
		}
	})
}
