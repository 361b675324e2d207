package rckm

import (
	"errors"
	"testing"
	"time"

	"github.com/gshare-dev/gshare/vgpu/share"
	"github.com/gshare-dev/gshare/vgpu/token"
)

// pair returns a slice with a greedy SLO share 1 with a request of 700, that is measured, and a best-effort share 2 with one of 200.
func pair(t *testing.T) *machine {
	t.Helper()
	m := newMachine(t, Config{})
	if err := errors.Join(
		m.Join(0, Member{ID: 1, Priority: share.SLO, Request: 700, Limit: 1000}),
		m.Join(0, Member{ID: 2, Priority: share.BestEffort, Request: 200, Limit: 1000}),
	); err != nil {
		t.Fatal(err)
	}
	for n := range time.Duration(200) {
		m.report(t, n, 1, Launches{Blocks: 100, Device: tick, Busy: true})
		m.advance((n + 1) * tick)
	}
	return m
}

// report reports launches in the n-th tick.
func (m *machine) report(t *testing.T, n time.Duration, id token.ID, l Launches) {
	t.Helper()
	l.First, l.Last = n*tick, (n+1)*tick
	if err := m.Report(l.Last, id, l); err != nil {
		t.Fatal(err)
	}
}

// TestOwed checks that an SLO share that waits behind long kernels gets its request, although both shares report device time all the time.
// The device runs one kernel at a time: those of best effort fill ten ticks.
func TestOwed(t *testing.T) {
	m := pair(t)
	got, left := 0, 0 // ticks of the SLO share; ticks left of the kernel of best effort
	const from, to = 200, 2200
	for n := time.Duration(from); n < to; n++ {
		launches := Launches{Device: tick, Busy: true}
		if left == 0 && m.credit[2] > 0 {
			launches.Blocks, left = 100, 10
		}
		if left > 0 {
			left--
			launches.Busy = left > 0
			m.report(t, n, 2, launches)
			m.report(t, n, 1, Launches{Device: tick, Busy: true})
		} else {
			got++
			m.report(t, n, 2, Launches{})
			m.report(t, n, 1, Launches{Blocks: 100, Device: tick, Busy: true})
		}
		m.advance((n + 1) * tick)
	}
	if got < (to-from)*68/100 || got > (to-from)*80/100 {
		t.Errorf("the SLO share got %d of %d ticks", got, to-from)
	}
}

// TestFalseClaim checks that an SLO share that claims unfinished work and launches nothing leaves best effort what it did not request.
func TestFalseClaim(t *testing.T) {
	m := pair(t)
	with := 0
	const from, to = 200, 2200
	for n := time.Duration(from); n < to; n++ {
		m.report(t, n, 1, Launches{Busy: true})
		if m.credit[2] > 0 {
			with++
			m.report(t, n, 2, Launches{Blocks: 1, Device: tick})
		}
		m.advance((n + 1) * tick)
	}
	if with < (to-from)*28/100 {
		t.Errorf("best effort had tokens in %d of %d ticks", with, to-from)
	}
}

// TestStarved checks that a best-effort share gets its request on a device that prefers the SLO share, although it never ran without it and
// so it is not known how long its blocks take; and that the SLO share gets its own meanwhile.
func TestStarved(t *testing.T) {
	m := pair(t)
	var got, unfinished [3]int // kernels of a tick that each share ran, and that it has launched; it keeps two under way
	const from, settled, to = 200, 600, 2600
	for n := time.Duration(from); n < to; n++ {
		launches, first := [3]Launches{}, 0
		for id := 2; id >= 1; id-- {
			for ; unfinished[id] < 2 && m.credit[token.ID(id)] > 0; m.credit[token.ID(id)] -= 100 {
				unfinished[id]++
				launches[id].Blocks += 100
			}
			if unfinished[id] > 0 {
				first = id                                          // the device prefers share 1
				launches[id].Busy, launches[id].Device = true, tick // its time in the queue, too
			}
		}
		unfinished[first]--
		if n >= settled {
			got[first]++
		}
		m.report(t, n, 1, launches[1])
		m.report(t, n, 2, launches[2])
		m.advance((n + 1) * tick)
	}
	const all = to - settled // two launched kernels are 10 ms: they count as got before they run, so the request is not quite reached
	if got[1] < all*70/100 || got[2] < all*16/100 {
		t.Errorf("of %d ticks, the SLO share got %d and best effort %d", all, got[1], got[2])
	}
}
