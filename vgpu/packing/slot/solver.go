package slot

import (
	"sync"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// Solver decides whether sets of items fit a slice, and caches the results of the linear program. It is safe for concurrent use. The cache
// changes its speed, never a result.
type Solver struct {
	memo     memo
	programs sync.Pool // of *program, to reuse their arrays
}

// NewSolver returns a solver with an empty cache.
func NewSolver() *Solver { return new(Solver) }

// Fits reports whether the items can share one slice with the given switching reserve, in per mille of a window. It keeps no reference to
// items.
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

// cachedFit returns whether the problem is feasible, from the cache or by solving it.
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

// solve runs the linear program and returns whether it proves that the items fit. Without a proof it returns false: a refused share can run
// elsewhere, but a broken guarantee cannot be repaired.
func (s *Solver) solve(p *problem) bool {
	g, ok := s.programs.Get().(*program)
	if !ok {
		g = new(program)
	}
	defer s.programs.Put(g)
	g.problem = *p
	return g.decide() == fits
}

// maxGeneration bounds the cache of a Solver: it holds at most twice as many results, some 6 MB when ten shares take turns on a slice and
// 20 MB when 64 do.
const maxGeneration = 1 << 15

// memo caches the results of the linear program in two generations. When the young generation is full, it becomes the old one, and results
// of the old one that were not read since are dropped.
type memo struct {
	mu         sync.Mutex // guards young and old
	young, old map[string]bool
}

// get returns the cached result of a problem, and moves it to the young generation.
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
