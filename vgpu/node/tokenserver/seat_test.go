package tokenserver

import (
	"testing"
	"time"

	"github.com/gshare-dev/gshare/vgpu/api/tokenwire"
	"github.com/gshare-dev/gshare/vgpu/token"
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

// What a process may queue ends with its token; the next token allows more again.
func TestNobodyQueuesMoreThanTheToken(t *testing.T) {
	page, err := newPage[tokenwire.ServerPage]("test", readOnly)
	if err != nil {
		t.Fatal(err)
	}
	s := &seat{server: page}
	defer page.close()
	for _, length := range []time.Duration{5 * time.Millisecond, 300 * time.Microsecond, 2 * time.Millisecond} {
		s.announce(&token.Token{Amount: int64(length), Deadline: time.Second}, time.Millisecond)
		if got := time.Duration(page.at.RunAhead.Load()); got != min(length, time.Millisecond) {
			t.Errorf("%v may be queued under a token of %v", got, length)
		}
	}
}
