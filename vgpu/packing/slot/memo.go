package slot

import "sync"

// generation bounds the memo: it holds at most twice as many verdicts, some 6 MB when ten shares take turns on
// a slice and 20 MB when 64 do.
const generation = 1 << 15

// memo remembers verdicts of the linear program. It forgets in two generations: when the young one is full, it becomes
// the old one, and what nobody asked for since then is gone.
type memo struct {
	mu         sync.Mutex // guards young and old
	young, old map[string]bool
}

// get returns the verdict of a name, and keeps it alive.
func (m *memo) get(key []byte) (fit, known bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if fit, known = m.young[string(key)]; known {
		return fit, true
	}
	if fit, known = m.old[string(key)]; known {
		m.put(string(key), fit)
	}
	return fit, known
}

// set remembers a verdict.
func (m *memo) set(key []byte, fit bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.put(string(key), fit)
}

func (m *memo) put(key string, fit bool) {
	if len(m.young) >= generation || m.young == nil {
		m.old, m.young = m.young, make(map[string]bool)
	}
	m.young[key] = fit
}
