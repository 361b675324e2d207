package shapes

// configuration counts the pods of each kind that run together.
type configuration []int

// knapsack finds the configuration of highest value for every number of cells of a GPU.
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

// heaviest returns the configuration of highest value at the current prices, with no more of a kind than there are pods of it.
func (m *master) heaviest() (configuration, float64) {
	clear(m.worth)
	c, left := make(configuration, len(m.kinds)), m.cells
	for k, x := range m.kinds {
		clear(m.copies[k])
		switch {
		case m.price[k] <= 0:
		case x.count*x.cells >= m.cells:
			m.offerAny(k, x.cells, m.price[k])
		default:
			m.offerSome(k, x, m.price[k])
		}
	}
	for k := len(m.kinds) - 1; k >= 0; k-- {
		c[k] = m.copies[k][left]
		left -= c[k] * m.kinds[k].cells
	}
	return c, m.worth[m.cells]
}

// offerAny lets any number of copies join: from few cells to many, one copy more than fewer cells hold.
func (s *knapsack) offerAny(k, cells int, price float64) {
	copies := s.copies[k]
	for c := cells; c < len(s.worth); c++ {
		if v := s.worth[c-cells] + price; v > s.worth[c] {
			s.worth[c], copies[c] = v, copies[c-cells]+1
		}
	}
}

// offerSome lets at most x.count copies join: from many cells to few, so that fewer cells do not hold any yet.
func (s *knapsack) offerSome(k int, x kind, price float64) {
	for c := len(s.worth) - 1; c >= x.cells; c-- {
		for n := 1; n <= x.count && n*x.cells <= c; n++ {
			if v := s.worth[c-n*x.cells] + float64(n)*price; v > s.worth[c] {
				s.worth[c], s.copies[k][c] = v, n
			}
		}
	}
}
