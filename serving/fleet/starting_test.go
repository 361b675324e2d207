package fleet

import (
	"strings"
	"testing"
	"time"
)

// TestReminders: the log says after some seconds what a replica waits for that does not start, and then once a minute; it says nothing of one
// that starts at once, and begins again with each start.
func TestReminders(t *testing.T) {
	lives := []life{{start: -1, dies: 150 * second, ends: second}, {start: 4 * second, dies: 100 * second}, {start: -1, ends: second}}
	start(t, "requestsPerSecond: 10, minReplicas: 1", func(attempt int) life { return lives[min(attempt, 2)] }, func(w *world) {
		const line = `msg="replica is still starting" replica=f-1 `
		for _, step := range []struct {
			at   time.Duration
			want string // of the last line
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
