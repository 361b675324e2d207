package cluster

// board caches the score of every machine for every shape of pod, and scores only machines that have changed. The highest score is
// best; of equal ones the first in the order of the nodes or, if draw is set, a random one, as in stock kube-scheduler.
type board struct {
	*Simulation
	score func(m *machine, p *Pod) int
	gpus  func(m *machine, p *Pod) []int // where nil, the tightest
	draw  bool
	rows  map[*shape][]entry // by machine
}

// entry is a score, valid for one version of the machine.
type entry struct {
	version, score int
	fits           bool
}

func (b *board) choose(s *shape) (int, []int, bool) {
	row := b.row(s)
	best, equals := -1, 0
	for i, m := range b.machines {
		e := &row[i]
		if e.version != m.version {
			*e = b.enter(m, s.pod)
		}
		switch {
		case !e.fits || best >= 0 && e.score < row[best].score:
		case best < 0 || e.score > row[best].score:
			best, equals = i, 1
		default:
			equals++
			if b.wins(i, best, equals) {
				best = i
			}
		}
	}
	if best < 0 {
		return 0, nil, false
	}
	return best, b.pick(b.machines[best], s.pod), true
}

// wins reports whether a further equal score replaces the best; n counts the equal scores so far.
func (b *board) wins(i, best, n int) bool {
	if b.draw {
		return b.random.IntN(n) == 0
	}
	return b.machines[i].rank < b.machines[best].rank
}

func (b *board) pick(m *machine, p *Pod) []int {
	if b.gpus == nil || p.GPUs != 1 {
		return m.tightest(p)
	}
	return b.gpus(m, p)
}

func (b *board) row(s *shape) []entry {
	if b.rows == nil {
		b.rows = map[*shape][]entry{}
	}
	if b.rows[s] == nil {
		b.rows[s] = make([]entry, len(b.machines))
		for i := range b.rows[s] {
			b.rows[s][i].version = -1
		}
	}
	return b.rows[s]
}

func (b *board) enter(m *machine, p *Pod) entry {
	if !m.fits(p) {
		return entry{version: m.version}
	}
	return entry{version: m.version, fits: true, score: b.score(m, p)}
}

func (b *board) placed(*shape, int, []int) {}
