package tokenserver

import (
	"testing"
	"time"

	"github.com/gshare-dev/gshare/vgpu/api/tokenwire"
	"github.com/gshare-dev/gshare/vgpu/token"
)

// TestHasWork checks that a process has work while it waits, while launched work is unfinished, and shortly after its last activity.
func TestHasWork(t *testing.T) {
	const now = time.Second
	for name, test := range map[string]struct {
		client clientState
		want   bool
	}{
		"nothing":                     {clientState{}, false},
		"waiting":                     {clientState{waiting: true}, true},
		"paused with unfinished work": {clientState{open: token.ShortWork, lastActive: now}, true},
		"paused and done":             {clientState{lastActive: now - 1}, false},
		"running":                     {clientState{running: true, lastActive: now - idleTimeout + 1}, true},
		"running, since now":          {clientState{running: true, stateSince: now}, true},
		"running, idle":               {clientState{running: true, lastActive: now - idleTimeout}, false},
		"running a long kernel":       {clientState{running: true, open: token.LongWork}, true},
	} {
		t.Run(name, func(t *testing.T) {
			if got := test.client.hasWork(now); got != test.want {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}

// TestCyclesAreReadOnce checks that each launch cycle is read once, that the longest of them is returned, and that forged values are
// bounded.
func TestCyclesAreReadOnce(t *testing.T) {
	page, err := newPage[tokenwire.ClientPage]("test", fixedSizeSeals)
	if err != nil {
		t.Fatal(err)
	}
	defer page.close()
	c := &clientState{client: page}
	end := func(length time.Duration) {
		n := page.at.Cycles.Load()
		page.at.CycleTimes[n%tokenwire.CyclesShown].Store(uint64(length))
		page.at.Cycles.Store(n + 1)
	}
	const now = time.Second
	check := func(name string, wantStart, wantLongest time.Duration) {
		t.Helper()
		if start, longest := c.readCycles(now); start != wantStart || longest != wantLongest {
			t.Errorf("%s: start %v, longest %v; want %v and %v", name, start, longest, wantStart, wantLongest)
		}
	}
	check("nothing", now, 0)
	end(7 * time.Millisecond)
	end(9 * time.Millisecond)
	end(8 * time.Millisecond)
	check("three cycles", now-9*time.Millisecond, 9*time.Millisecond)
	check("the same again", now, 0)
	page.at.CycleStart.Store(uint64(now - 3*time.Millisecond))
	check("one is open", now-3*time.Millisecond, 0)
	for range 3 * tokenwire.CyclesShown {
		end(time.Millisecond)
	}
	check("more than the page holds", now-3*time.Millisecond, time.Millisecond)
	page.at.CycleStart.Store(uint64(now + time.Hour))
	page.at.CycleTimes[page.at.Cycles.Load()%tokenwire.CyclesShown].Store(1 << 63)
	page.at.Cycles.Add(1)
	check("forged values", now, 0)
	page.at.Cycles.Store(0)
	page.at.CycleStart.Store(0)
	check("a count that decreases", now, 0)
}

func TestLeasedSessionsExpire(t *testing.T) {
	l := newLeasedSessions([]uint64{1, 2}, time.Second)
	l.end(1)
	l.end(7)
	if l.expire(time.Second - 1); !l.any() {
		t.Error("the session expired before its lease")
	}
	if l.expire(time.Second); l.any() {
		t.Error("the session did not expire with its lease")
	}
}
