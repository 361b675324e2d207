package cluster

// scoredPolicy chooses the machine with the highest score. It caches the score of every machine for every distinct pod request, and scores
// only machines that have changed. Among equal scores it takes the first machine in the order of the nodes or, if draw is set, a random
// one, as stock kube-scheduler does.
type scoredPolicy struct {
	*Simulation
	score func(m *machine, p *Pod) int
	gpus  func(m *machine, p *Pod) []int // if nil, the tightest GPUs
	draw  bool
	rows  map[*shape][]cachedScore // by machine
}

// cachedScore is the score of one version of a machine for a pod request.
type cachedScore struct {
	version, score int
	fits           bool
}

func (b *scoredPolicy) choose(s *shape) (int, []int, bool) {
	row := b.row(s)
	best, equals := -1, 0
	for i, m := range b.machines {
		e := &row[i]
		if e.version != m.version {
			*e = b.evaluate(m, s.pod)
		}
		switch {
		case !e.fits || best >= 0 && e.score < row[best].score:
		case best < 0 || e.score > row[best].score:
			best, equals = i, 1
		default:
			equals++
			if b.replacesBest(i, best, equals) {
				best = i
			}
		}
	}
	if best < 0 {
		return 0, nil, false
	}
	return best, b.pick(b.machines[best], s.pod), true
}

// replacesBest reports whether machine i, whose score equals the best one so far, replaces it. n is the number of machines with that score
// so far; it sets the probability if ties are broken at random.
func (b *scoredPolicy) replacesBest(i, best, n int) bool {
	if b.draw {
		return b.random.IntN(n) == 0
	}
	return b.machines[i].rank < b.machines[best].rank
}

func (b *scoredPolicy) pick(m *machine, p *Pod) []int {
	if b.gpus == nil || p.GPUs != 1 {
		return m.tightestGPUs(p)
	}
	return b.gpus(m, p)
}

func (b *scoredPolicy) row(s *shape) []cachedScore {
	if b.rows == nil {
		b.rows = map[*shape][]cachedScore{}
	}
	if b.rows[s] == nil {
		b.rows[s] = make([]cachedScore, len(b.machines))
		for i := range b.rows[s] {
			b.rows[s][i].version = -1
		}
	}
	return b.rows[s]
}

func (b *scoredPolicy) evaluate(m *machine, p *Pod) cachedScore {
	if !m.fits(p) {
		return cachedScore{version: m.version}
	}
	return cachedScore{version: m.version, fits: true, score: b.score(m, p)}
}

func (b *scoredPolicy) placed(*shape, int, []int) {}
