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
