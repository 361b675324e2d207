package slot

import "math/bits"

// config is a set of pieces that may run together, one bit each.
type config uint64

func (c config) with(k int) config    { return c | 1<<k }
func (c config) without(k int) config { return c &^ (1 << k) }
func (c config) empty() bool          { return c == 0 }
func (c config) first() int           { return bits.TrailingZeros64(uint64(c)) }
func (c config) withoutFirst() config         { return c & (c - 1) }

// changes counts the pieces that start or stop between two configurations.
func changes(a, b config) int { return bits.OnesCount64(uint64(a ^ b)) }

// maxCells is the whole slice in cells of one per mille.
const maxCells = 1000

// knapsack finds the configuration of most weight. Weights are integers, so its answer is exact.
type knapsack struct {
	weight [maxPartials]int64
	worth  [maxCells + 1]int64 // by cells: the most weight that they hold
	set    [maxCells + 1]config
}

// heaviest returns the configuration of most weight, the first found among equals.
//
// Only the full capacity is asked for in the end, so a piece need not look at cells that the pieces after it cannot
// bring up to there.
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

// offer lets piece k, of the given size, improve the cells from low to high.
func (s *knapsack) addPartial(k, size, low, high int) {
	w := s.weight[k]
	for c := high; c >= low; c-- {
		if v := s.worth[c-size] + w; v > s.worth[c] {
			s.worth[c], s.set[c] = v, s.set[c-size].with(k)
		}
	}
}
