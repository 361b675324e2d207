package slot

import (
	"sync"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// Solver answers whether sets of items fit, and remembers the answers that took work. It is safe for concurrent use.
// What it remembers changes its speed, never an answer.
type Solver struct {
	memo     memo
	programs sync.Pool // of *program, to reuse their arrays
}

// NewSolver returns a solver with an empty memory.
func NewSolver() *Solver { return new(Solver) }

// Fits reports whether the items can share one slice with the given switching reserve, in per mille of a
// window. It keeps no reference to items.
func (s *Solver) Fits(items []Item, reserve share.PerMille) bool {
	var p problem
	v := p.normalize(items, reserve)
	if v == unknown {
		v = p.quickTest()
	}
	if v == unknown {
		return s.cachedFit(&p)
	}
	return v == fits
}

// recall answers from the memory, or works the answer out and remembers it.
func (s *Solver) cachedFit(p *problem) bool {
	var space [4 * (maxPartials + 1)]byte
	key := p.key(space[:0])
	fit, known := s.memo.get(key)
	if !known {
		fit = s.solve(p)
		s.memo.set(key, fit)
	}
	return fit
}

// work runs the linear program. Without a proof the answer is no: a refused share can go elsewhere, a broken guarantee
// cannot be repaired.
func (s *Solver) solve(p *problem) bool {
	g, ok := s.programs.Get().(*program)
	if !ok {
		g = new(program)
	}
	defer s.programs.Put(g)
	g.problem = *p
	return g.decide() == fits
}

// generation bounds the memo: it holds at most twice as many verdicts, some 6 MB when ten shares take turns on
// a slice and 20 MB when 64 do.
const maxGeneration = 1 << 15

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
	if len(m.young) >= maxGeneration || m.young == nil {
		m.old, m.young = m.young, make(map[string]bool)
	}
	m.young[key] = fit
}
