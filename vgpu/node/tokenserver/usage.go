package tokenserver

import "time"

// usage counts the device time, tokens and waits of a vGPU since it joined its slice.
type usage struct {
	recent recentUse
	busy   time.Duration
	tokens uint64
	waits  Waits
}

func (u *usage) addBusy(now, busy time.Duration) {
	u.recent.add(now, busy)
	u.busy += busy
}

const meterSlots = 10

// recentUse sums up the device time used in the last second, in slots of a tenth of a second.
type recentUse struct {
	slots [meterSlots]time.Duration
	last  int64 // number of the latest slot, counted from the clock's zero
}

func (m *recentUse) add(now, used time.Duration) {
	m.advance(now)
	m.slots[m.last%meterSlots] += used
}

// total returns the device time used in the last second.
func (m *recentUse) total(now time.Duration) (sum time.Duration) {
	m.advance(now)
	for _, used := range m.slots {
		sum += used
	}
	return min(sum, time.Second)
}

// advance clears the slots of a tenth of a second that began since the last call.
func (m *recentUse) advance(now time.Duration) {
	tenth := int64(now / (time.Second / meterSlots))
	m.last = max(m.last, tenth-meterSlots)
	for m.last < tenth {
		m.last++
		m.slots[m.last%meterSlots] = 0
	}
}

// WaitBounds are the upper bounds of the buckets of the Waits histogram. The last bucket is unbounded.
var WaitBounds = [...]time.Duration{
	100 * time.Microsecond, 250 * time.Microsecond, time.Millisecond, 2500 * time.Microsecond, 5 * time.Millisecond,
	10 * time.Millisecond, 25 * time.Millisecond, 50 * time.Millisecond, 100 * time.Millisecond, 250 * time.Millisecond,
	time.Second, 5 * time.Second,
}

// Waits is a histogram of the time that processes waited for a token: from when the server was notified of the wait until it let the
// process run.
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
