package tokenserver

import (
	"testing"
	"time"
)

// A process has work while it says so, while some of it is under way, and for a moment after its last sign of work.
func TestWants(t *testing.T) {
	const now = time.Second
	for name, test := range map[string]struct {
		seat seat
		want bool
	}{
		"nothing":               {seat{}, false},
		"waiting":               {seat{waiting: true}, true},
		"stopped in its work":   {seat{open: true, active: now}, true},
		"stopped and done":      {seat{active: now - 1}, false},
		"running":               {seat{running: true, active: now - idleAfter + 1}, true},
		"running, since now":    {seat{running: true, since: now}, true},
		"running, idle":         {seat{running: true, active: now - idleAfter}, false},
		"running a long kernel": {seat{running: true, open: true}, true},
	} {
		if got := test.seat.wants(now); got != test.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
