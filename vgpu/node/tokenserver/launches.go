package tokenserver

import (
	"time"

	"github.com/gshare-dev/gshare/vgpu/api/tokenwire"
	"github.com/gshare-dev/gshare/vgpu/token/rckm"
)

// reportLaunches tells the rules what the processes launched, if they do not know it (DI-58).
func (v *vgpu) reportLaunches(now time.Duration) {
	v.ghosts.expire(now)
	l := rckm.Launches{Blocks: v.launched(), First: now, Last: now}
	for _, s := range v.seats {
		busy, working := s.read(now)
		v.used.add(now, busy)
		v.busy += busy
		l.Device += busy
		start, longest := s.cycle(now)
		l.First = min(l.First, start)
		l.Busy = l.Busy || working && start < now
		l.Batch = max(l.Batch, longest)
	}
	if l.Blocks > 0 || l.Device > 0 || l.Batch > 0 || l.Busy != v.working {
		l.First = max(l.First, v.looked)
		_ = v.Slice.blocks.Report(now, v.id, l) // it has joined
		v.working = l.Busy
	}
	v.looked = now
}

// launched is how many blocks were taken since the last look. Those that were given back were reported already: whoever takes
// them is not charged again.
func (v *vgpu) launched() int64 {
	n := int64(v.page.at.Taken.Load() - v.reported)
	if n <= 0 {
		return 0
	}
	v.reported += uint64(n)
	return n
}

// cycle reads the launch cycles of a process: when the open one began, or the latest that ended since the last look, and the
// longest of these. It cannot have begun later than now.
func (s *seat) cycle(now time.Duration) (start, longest time.Duration) {
	page := s.client.at
	ended := page.Cycles.Load() // before the times
	for n := max(s.cycles, ended-min(ended, tokenwire.CyclesShown)); n < ended; n++ {
		longest = max(longest, time.Duration(page.CycleTimes[n%tokenwire.CyclesShown].Load()))
	}
	s.cycles = ended
	if open := time.Duration(page.CycleStart.Load()); open > 0 {
		return min(open, now), longest
	}
	return now - longest, longest
}
