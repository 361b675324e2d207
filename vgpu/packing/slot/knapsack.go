package slot

import "math/bits"

// config is a configuration: a set of partial items that may run together, one bit each.
type config uint64

func (c config) with(k int) config    { return c | 1<<k }
func (c config) without(k int) config { return c &^ (1 << k) }
func (c config) empty() bool          { return c == 0 }
func (c config) first() int           { return bits.TrailingZeros64(uint64(c)) }
func (c config) withoutFirst() config { return c & (c - 1) }

// changes returns the number of items that start or stop between two configurations.
func changes(a, b config) int { return bits.OnesCount64(uint64(a ^ b)) }

// maxCells is the size of a whole slice in cells if a cell is one per mille of its SMs.
const maxCells = 1000

// knapsack solves a knapsack problem over the SMs of a slice: it finds the configuration of largest total weight. Weights are integers, so
// the solution is exact.
type knapsack struct {
	weight [maxPartials]int64
	worth  [maxCells + 1]int64 // for each number of cells, the most weight that they can hold
	set    [maxCells + 1]config
}

// heaviest returns the configuration of largest total weight and that weight; of several equally heavy ones, the first that it finds.
//
// Only the result for the full capacity is read in the end, so for each item it skips the capacities from which the later items can no
// longer fill the slice.
func (s *knapsack) heaviest(p *problem) (config, int64) {
	clear(s.worth[:p.cells+1])
	clear(s.set[:p.cells+1])
	later := 0
	for _, x := range p.list() {
		later += int(x.cells)
	}
	for k, x := range p.list() {
		later -= int(x.cells)
		if s.weight[k] > 0 {
			s.addPartial(k, int(x.cells), max(int(x.cells), p.cells-later), p.cells)
		}
	}
	return s.set[p.cells], s.worth[p.cells]
}

// addPartial lets item k, of the given size, improve the best solutions for the capacities from low to high: one step of the dynamic
// program.
func (s *knapsack) addPartial(k, size, low, high int) {
	w := s.weight[k]
	for c := high; c >= low; c-- {
		if v := s.worth[c-size] + w; v > s.worth[c] {
			s.worth[c], s.set[c] = v, s.set[c-size].with(k)
		}
	}
}
