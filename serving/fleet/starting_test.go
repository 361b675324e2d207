package fleet

import (
	"strings"
	"testing"
	"time"
)

// TestReminders: after some seconds, and then once a minute, the log says what a replica waits for that does not start. It says nothing about
// one that starts at once, and begins anew with each start.
func TestReminders(t *testing.T) {
	lives := []life{{start: -1, dies: 150 * second, ends: second}, {start: 4 * second, dies: 100 * second}, {start: -1, ends: second}}
	start(t, "requestsPerSecond: 10, minReplicas: 1", func(attempt int) life { return lives[min(attempt, 2)] }, func(w *world) {
		const line = `msg="replica is still starting" replica=f-1 `
		for _, step := range []struct {
			at   time.Duration
			want string // contained in the last line
			n    int
		}{
			{at: 4 * second, n: 0}, {at: 6 * second, want: `seconds=5 reason="no room"`, n: 1}, {at: 64 * second, n: 1},
			{at: 67 * second, want: `seconds=65 reason="no room"`, n: 2}, {at: 149 * second, want: `seconds=125 reason="no room"`, n: 3},
			{at: 249 * second, n: 3}, {at: 258 * second, want: `seconds=5 reason="no room"`, n: 4},
		} {
			sleep(time.Until(w.begin.Add(step.at)))
			got := w.log.lines(line)
			if len(got) != step.n || step.want != "" && !strings.Contains(got[len(got)-1], step.want) {
				w.Errorf("after %v: %q, want %d lines and %s", step.at, got, step.n, step.want)
			}
		}
	})
}

// TestUnready: the log says what a replica waits for that is no longer ready, with intervals counted from then on, not from its start.
func TestUnready(t *testing.T) {
	start(t, "requestsPerSecond: 10, minReplicas: 1", func(int) life { return life{start: second} }, func(w *world) {
		sleep(time.Hour)
		w.events <- Event{Instance: "f-1", Kind: Starting, Message: "probe fails"}
		sleep(3 * second)
		const line = `msg="replica is still starting" replica=f-1 `
		if got := w.log.lines(line); len(got) != 0 || w.status().Ready {
			w.Errorf("%q, %+v", got, w.status())
		}
		sleep(20 * second)
		if got := w.log.lines(line); len(got) != 1 {
			w.Errorf("%q", got)
		}
		w.events <- Event{Instance: "f-1", Kind: Ready, Address: "f-1:80"}
		if status, _ := w.ask(ms); status != 200 {
			w.Errorf("status %d when it is ready again", status)
		}
	})
}
