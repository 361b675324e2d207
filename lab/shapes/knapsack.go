package shapes

// configuration is a set of pods that run together, as the number of pods of each SM share.
type configuration []int

// knapsack solves a knapsack problem: it finds the configuration of highest value for every capacity up to a whole GPU.
type knapsack struct {
	worth  []float64 // by cells: the most that they hold
	copies [][]int   // by kind and cells: how many of the kind are in it
}

func newKnapsack(kinds, cells int) knapsack {
	s := knapsack{worth: make([]float64, cells+1), copies: make([][]int, kinds)}
	for k := range s.copies {
		s.copies[k] = make([]int, cells+1)
	}
	return s
}

// bestConfiguration returns the configuration of highest value at the current prices and that value. It contains no more pods of an SM
// share than there are.
func (m *fleetLP) bestConfiguration() (configuration, float64) {
	clear(m.worth)
	c, left := make(configuration, len(m.groups)), m.cells
	for k, x := range m.groups {
		clear(m.copies[k])
		switch {
		case m.price[k] <= 0:
		case x.count*x.cells >= m.cells:
			m.addUnbounded(k, x.cells, m.price[k])
		default:
			m.addBounded(k, x, m.price[k])
		}
	}
	for k := len(m.groups) - 1; k >= 0; k-- {
		c[k] = m.copies[k][left]
		left -= c[k] * m.groups[k].cells
	}
	return c, m.worth[m.cells]
}

// addUnbounded extends the solutions with any number of pods of group k. It goes from small capacities to large ones, so that each may take
// one pod more than a smaller one.
func (s *knapsack) addUnbounded(k, cells int, price float64) {
	copies := s.copies[k]
	for c := cells; c < len(s.worth); c++ {
		if v := s.worth[c-cells] + price; v > s.worth[c] {
			s.worth[c], copies[c] = v, copies[c-cells]+1
		}
	}
}

// addBounded extends the solutions with at most x.count pods of group k. It goes from large capacities to small ones, so that the smaller
// ones it reads contain no such pod yet.
func (s *knapsack) addBounded(k int, x smGroup, price float64) {
	for c := len(s.worth) - 1; c >= x.cells; c-- {
		for n := 1; n <= x.count && n*x.cells <= c; n++ {
			if v := s.worth[c-n*x.cells] + float64(n)*price; v > s.worth[c] {
				s.worth[c], s.copies[k][c] = v, n
			}
		}
	}
}
