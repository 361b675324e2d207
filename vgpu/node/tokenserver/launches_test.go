package tokenserver

import (
	"testing"
	"time"

	"github.com/gshare-dev/gshare/vgpu/api/tokenwire"
)

// TestCyclesAreReadOnce: the longest of the cycles that ended since the last look counts, once, and what a process writes there
// stays within reason.
func TestCyclesAreReadOnce(t *testing.T) {
	page, err := newPage[tokenwire.ClientPage]("test", fixedSize)
	if err != nil {
		t.Fatal(err)
	}
	defer page.close()
	s := &seat{client: page}
	end := func(length time.Duration) {
		n := page.at.Cycles.Load()
		page.at.CycleTimes[n%tokenwire.CyclesShown].Store(uint64(length))
		page.at.Cycles.Store(n + 1)
	}
	const now = time.Second
	look := func(name string, wantStart, wantLongest time.Duration) {
		t.Helper()
		if start, longest := s.cycle(now); start != wantStart || longest != wantLongest {
			t.Errorf("%s: from %v, longest %v; want %v and %v", name, start, longest, wantStart, wantLongest)
		}
	}
	look("nothing", now, 0)
	end(7 * time.Millisecond)
	end(9 * time.Millisecond)
	end(8 * time.Millisecond)
	look("three cycles", now-9*time.Millisecond, 9*time.Millisecond)
	look("the same again", now, 0)
	page.at.CycleStart.Store(uint64(now - 3*time.Millisecond))
	look("one is open", now-3*time.Millisecond, 0)
	for range 3 * tokenwire.CyclesShown {
		end(time.Millisecond)
	}
	look("more than are shown", now-3*time.Millisecond, time.Millisecond)
	page.at.CycleStart.Store(uint64(now + time.Hour))
	page.at.CycleTimes[page.at.Cycles.Load()%tokenwire.CyclesShown].Store(1 << 63)
	page.at.Cycles.Add(1)
	look("lies", now, 0)
	page.at.Cycles.Store(0)
	page.at.CycleStart.Store(0)
	look("a count that falls", now, 0)
}
