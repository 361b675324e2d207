package tokenserver

import "time"

const meterSlots = 10

// meter adds up what was used over the last second, in tenths.
type meter struct {
	slots [meterSlots]time.Duration
	last  int64 // tenth of a second since the clock's zero
}

func (m *meter) add(now, used time.Duration) {
	m.reach(now)
	m.slots[m.last%meterSlots] += used
}

// second is the sum over the last second, of which the last tenth is still running.
func (m *meter) second(now time.Duration) (sum time.Duration) {
	m.reach(now)
	for _, used := range m.slots {
		sum += used
	}
	return min(sum, time.Second)
}

func (m *meter) reach(now time.Duration) {
	tenth := int64(now / (time.Second / meterSlots))
	m.last = max(m.last, tenth-meterSlots)
	for m.last < tenth {
		m.last++
		m.slots[m.last%meterSlots] = 0
	}
}
