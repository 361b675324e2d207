package rckm

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/gshare-dev/gshare/vgpu/share"
	"github.com/gshare-dev/gshare/vgpu/token"
)

// turns lets two shares use a device that runs one kernel at a time, in the order of launches, from one tick to another. A share launches
// its next kernel, of 100 blocks, once the last one has ended, in those ticks for which works says so; kernel is the number of ticks that one
// takes. It returns in how many ticks the kernels of each share ran.
func (m *machine) turns(t *testing.T, from, to time.Duration, kernel [3]int, works func(id token.ID, n time.Duration) bool) (got [3]int) {
	t.Helper()
	var queue []token.ID
	left := 0
	for n := from; n < to; n++ {
		var launches [3]Launches
		for id := token.ID(1); id <= 2; id++ {
			if works(id, n) && m.credit[id] > 0 && !slices.Contains(queue, id) {
				queue = append(queue, id)
				m.credit[id] -= 100
				launches[id].Blocks = 100
			}
		}
		for _, id := range queue {
			launches[id].Busy, launches[id].Device = true, tick // also behind the kernel of another share
		}
		if len(queue) > 0 {
			first := queue[0]
			if left == 0 {
				left = kernel[first]
			}
			got[first]++
			if left--; left == 0 {
				queue = queue[1:]
				launches[first].Busy = false
			}
		}
		for id := token.ID(1); id <= 2; id++ {
			m.report(t, n, id, launches[id])
		}
		m.advance((n + 1) * tick)
	}
	return got
}

func always(token.ID, time.Duration) bool { return true }

// joined returns a slice on which two shares have joined.
func joined(t *testing.T, a, b Member) *machine {
	t.Helper()
	m := newMachine(t, Config{})
	if err := errors.Join(m.Join(0, a), m.Join(0, b)); err != nil {
		t.Fatal(err)
	}
	m.advance(0)
	return m
}

// TestWithoutRequest: a share without a request runs only while its neighbour leaves the device idle, of whatever priority that is, and has
// everything when alone. Where the caps of both fit on the slice, it runs all the time.
func TestWithoutRequest(t *testing.T) {
	half := func(id token.ID, n time.Duration) bool { return id == 2 || n%20 < 10 }
	alone := func(id token.ID, _ time.Duration) bool { return id == 2 }
	for name, c := range map[string]struct {
		cap, kernel    int
		works          func(token.ID, time.Duration) bool
		neighbour, own [2]int // least and most ticks of 1000
	}{
		"busy neighbour":               {1000, 1, always, [2]int{990, 1000}, [2]int{0, 10}},
		"busy neighbour, long kernels": {1000, 10, always, [2]int{990, 1000}, [2]int{0, 10}},
		"neighbour at times":           {1000, 1, half, [2]int{450, 500}, [2]int{400, 550}},
		"neighbour at times, long":     {1000, 3, half, [2]int{350, 500}, [2]int{400, 650}},
		"alone":                        {1000, 1, alone, [2]int{0, 0}, [2]int{990, 1000}},
	} {
		for _, priority := range []share.Priority{share.BestEffort, share.SLO} {
			t.Run(name+", "+string(priority), func(t *testing.T) {
				m := joined(t, Member{ID: 1, Priority: priority, Request: 700, Limit: 700},
					Member{ID: 2, Priority: share.BestEffort, Limit: share.PerMille(c.cap)})
				m.turns(t, 0, 1000, [3]int{0, 1, c.kernel}, c.works)
				got := m.turns(t, 1000, 2000, [3]int{0, 1, c.kernel}, c.works)
				if got[1] < c.neighbour[0] || got[1] > c.neighbour[1] || got[2] < c.own[0] || got[2] > c.own[1] {
					t.Errorf("the neighbour got %d of 1000 ticks, want %v; the share %d, want %v", got[1], c.neighbour, got[2], c.own)
				}
			})
		}
	}
}

// TestReshape: a share that gives up its request stops its neighbour no more, and gets what it got before when it has it again, within a
// second.
func TestReshape(t *testing.T) {
	for name, kernel := range map[string][3]int{"short kernels": {0, 1, 1}, "long kernels of the neighbour": {0, 1, 10}, "long kernels": {0, 10, 1}} {
		for _, priority := range []share.Priority{share.BestEffort, share.SLO} {
			t.Run(name+", "+string(priority), func(t *testing.T) {
				m := joined(t, Member{ID: 1, Priority: priority, Request: 600, Limit: 1000}, Member{ID: 2, Priority: priority, Request: 300, Limit: 1000})
				m.turns(t, 0, 1000, kernel, always)
				want := m.turns(t, 1000, 2000, kernel, always)
				for at := time.Duration(2000); at < 10000; at += 2400 {
					if err := m.Reshape(at*tick, 1, share.BestEffort, 0); err != nil {
						t.Fatal(err)
					}
					m.turns(t, at, at+200, kernel, always)
					if got := m.turns(t, at+200, at+1200, kernel, always); got[2] < 980 {
						t.Errorf("without a request of share 1, share 2 gets %d of 1000 ticks", got[2])
					}
					if err := m.Reshape((at+1200)*tick, 1, priority, 600); err != nil {
						t.Fatal(err)
					}
					if a := m.members[0].time; a.owed != 0 || a.stopped {
						t.Errorf("it begins with %+v", a)
					}
					m.turns(t, at+1200, at+1400, kernel, always)
					if got := m.turns(t, at+1400, at+2400, kernel, always); got[1] < min(want[1], 600)-20 {
						t.Errorf("with its request again, share 1 gets %d of 1000 ticks; before it got %d", got[1], want[1])
					}
				}
			})
		}
	}
}

// TestIdleSMs: a share without a request runs beside a busy one if both caps fit on the slice, until that one is in EMERGENCY.
func TestIdleSMs(t *testing.T) {
	for _, c := range []struct {
		cap       share.PerMille
		emergency bool
		want      bool // it is stopped
	}{{300, false, false}, {301, false, true}, {300, true, true}} {
		hot := &member{Member: Member{ID: 1, Priority: share.SLO, Request: 500, Limit: 700}, cap: 700, silent: window, time: timeAccount{active: true}}
		m := &member{Member: Member{ID: 2, Priority: share.BestEffort, Limit: c.cap}, cap: c.cap, time: timeAccount{active: true}}
		s := timeAccounts{[]*member{hot, m}, tick, c.emergency}
		if got := s.isStopped(m); got != c.want {
			t.Errorf("%+v: stopped: %v", c, got)
		}
		if hot.time.active = false; s.isStopped(m) {
			t.Errorf("%+v: stopped beside an idle share", c)
		}
	}
}

// TestAllWithoutRequest: shares none of which has a request do not stop each other.
func TestAllWithoutRequest(t *testing.T) {
	m := joined(t, Member{ID: 1, Priority: share.BestEffort, Limit: 1000}, Member{ID: 2, Priority: share.BestEffort, Limit: 1000})
	if got := m.turns(t, 0, 1000, [3]int{0, 1, 1}, always); got[1] < 450 || got[2] < 450 {
		t.Errorf("they got %v ticks of 1000", got)
	}
}

func TestReshapeRefuses(t *testing.T) {
	m := newMachine(t, Config{})
	if err := m.Join(0, Member{ID: 1, Priority: share.SLO, Request: 300, Limit: 600}); err != nil {
		t.Fatal(err)
	}
	for name, err := range map[string]error{
		"SLO without a request": m.Reshape(0, 1, share.SLO, 0), "above the limit": m.Reshape(0, 1, share.SLO, 601),
		"negative": m.Reshape(0, 1, share.BestEffort, -1), "unknown share": m.Reshape(0, 2, share.BestEffort, 0),
	} {
		if err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if got := m.members[0].Member; got.Request != 300 || got.Priority != share.SLO {
		t.Errorf("after refusals it is %+v", got)
	}
}
