package tokenserver

import "time"

// usage counts what a vGPU has used and waited for since it joined, for status and metrics.
type usage struct {
	recent meter
	busy   time.Duration
	tokens uint64
	waits  Waits
}

func (u *usage) addBusy(now, busy time.Duration) {
	u.recent.add(now, busy)
	u.busy += busy
}

const meterSlots = 10

// meter sums device time over the last second, in slots of a tenth of a second.
type meter struct {
	slots [meterSlots]time.Duration
	last  int64 // number of the latest slot, counted from the clock's zero
}

func (m *meter) add(now, used time.Duration) {
	m.advance(now)
	m.slots[m.last%meterSlots] += used
}

// sum returns the device time of the last second, of which the latest slot is incomplete.
func (m *meter) sum(now time.Duration) (sum time.Duration) {
	m.advance(now)
	for _, used := range m.slots {
		sum += used
	}
	return min(sum, time.Second)
}

// advance clears the slots that have begun since the last call.
func (m *meter) advance(now time.Duration) {
	tenth := int64(now / (time.Second / meterSlots))
	m.last = max(m.last, tenth-meterSlots)
	for m.last < tenth {
		m.last++
		m.slots[m.last%meterSlots] = 0
	}
}

// WaitBounds are the upper bounds of the histogram buckets of waits; the last bucket has none.
var WaitBounds = [...]time.Duration{
	100 * time.Microsecond, 250 * time.Microsecond, time.Millisecond, 2500 * time.Microsecond, 5 * time.Millisecond,
	10 * time.Millisecond, 25 * time.Millisecond, 50 * time.Millisecond, 100 * time.Millisecond, 250 * time.Millisecond,
	time.Second, 5 * time.Second,
}

// Waits is a histogram of the time that processes waited for a token: from when the server knows of the wait until the state is Run.
type Waits struct {
	Buckets [len(WaitBounds) + 1]uint64 // not cumulative
	Count   uint64
	Sum     time.Duration
	Stalls  uint64 // waits longer than a window, in which every share receives its quota
}

func (w *Waits) add(wait, window time.Duration) {
	bucket := 0
	for bucket < len(WaitBounds) && wait > WaitBounds[bucket] {
		bucket++
	}
	w.Buckets[bucket]++
	w.Count++
	w.Sum += wait
	if wait > window {
		w.Stalls++
	}
}
