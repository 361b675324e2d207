package shapes

import (
	"slices"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// smGroup is the group of all pods with the same SM share.
type smGroup struct {
	sm     share.PerMille
	cells  int     // the SM share in cells, see groupPods
	count  int     // number of pods, a limit for every configuration
	demand float64 // stretched quotas, in windows
}

// fleetLP is the configuration LP of a fleet, with one row for each SM share. Any prices yield a lower bound on the number of GPUs: the
// value of the demand at those prices divided by the value of the best configuration (Farley). The bound is valid however early the
// simplex method ends.
type fleetLP struct {
	groups  []smGroup
	cells   int
	inverse [][]float64 // of the basis, with a row for each member
	time    []float64   // of each member, in GPUs
	price   []float64   // of each kind
	knapsack
}

const tiny = 1e-9

func newFleetLP(pods []Pod, reserve share.PerMille) *fleetLP {
	m := &fleetLP{}
	m.groupPods(pods, reserve)
	n := len(m.groups)
	m.knapsack = newKnapsack(n, m.cells)
	m.time, m.price = make([]float64, n), make([]float64, n)
	for k, x := range m.groups {
		copies := float64(min(x.count, m.cells/x.cells))
		row := make([]float64, n)
		row[k], m.time[k] = 1/copies, x.demand/copies
		m.inverse = append(m.inverse, row)
	}
	m.reprice()
	return m
}

// groupPods groups the pods by SM share. The unit of SMs, a cell, is the greatest common divisor of the shares.
func (m *fleetLP) groupPods(pods []Pod, reserve share.PerMille) {
	demand, count := map[share.PerMille]int{}, map[share.PerMille]int{}
	var sms []share.PerMille
	cell := 0
	for _, p := range pods {
		if count[p.SM] == 0 {
			sms = append(sms, p.SM)
			cell = gcd(int(p.SM), cell)
		}
		count[p.SM]++
		demand[p.SM] += min(int(share.Whole-reserve), int(p.Quota))
	}
	slices.Sort(sms)
	m.cells = int(share.Whole) / max(cell, 1)
	for _, sm := range sms {
		m.groups = append(m.groups, smGroup{sm, int(sm) / cell, count[sm], float64(demand[sm]) / float64(share.Whole-reserve)})
	}
}

func gcd(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// solve pivots until no configuration is worth more than its time by more than the given gap, and returns the best lower bound found.
func (m *fleetLP) solve(gap float64) float64 {
	least := 0.0
	for range m.maxPivots() {
		enter, worth := m.bestConfiguration()
		least = max(least, m.demandValue()/max(worth, 1))
		if worth <= 1+gap || !m.pivot(enter) {
			break
		}
	}
	return least
}

// maxPivots bounds the number of pivots. A hundred SM shares need a few hundred pivots.
func (m *fleetLP) maxPivots() int { return 1000 + 20*len(m.groups) }

// demandValue returns the value of all pods' quotas at the current prices.
func (m *fleetLP) demandValue() float64 {
	sum := 0.0
	for k, x := range m.groups {
		sum += x.demand * max(0, m.price[k])
	}
	return sum
}

// LowerBound returns a fractional number of GPUs below which no packing of the pods exists, neither by rectangles nor by slots.
//
// It is the optimum of the configuration LP over the whole fleet (docs/packing.md, fact 7): minimise the sum of x(C), where the C are
// multisets of SM shares that fit one GPU, such that every SM share is served for the sum of its pods' quotas. The LP relaxes two
// conditions, which can only lower the bound: pods of equal SM share may pass time to each other, and a pod may be divided between GPUs.
// The memory of all pods divided by that of one GPU is a second bound. Rounding errors are below 1e-9.
//
// With a reserve r, a pod counts with min(1, quota/(1-r)). On a GPU that switches, configurations take at most 1-r of the window, which
// these quotas stretch to the whole window; there a pod with full quota is in every configuration, and no pod has a quota between 1-r and
// 1. On a GPU with a single configuration all pods may run for the whole window. In both cases the stretched quotas fit the window, so
// whatever fits with the reserve satisfies the LP.
func LowerBound(pods []Pod, memory share.Bytes, reserve share.PerMille) float64 {
	return max(newFleetLP(pods, reserve).solve(tiny), memoryBound(pods, memory))
}

func memoryBound(pods []Pod, memory share.Bytes) float64 {
	sum := 0.0
	for _, p := range pods {
		sum += float64(p.Memory)
	}
	if sum == 0 {
		return 0
	}
	return sum / float64(memory)
}

// pivot brings a configuration into the basis. It returns false if rounding errors leave no basis configuration that can make way for it.
func (m *fleetLP) pivot(enter configuration) bool {
	step := m.shrinkRates(enter)
	leave := -1
	for k, d := range step {
		if d > tiny && (leave < 0 || m.time[k]*step[leave] < m.time[leave]*d) {
			leave = k
		}
	}
	if leave < 0 {
		return false
	}
	m.exchange(step, leave)
	m.reprice()
	return true
}

// shrinkRates returns by how much the time of each basis configuration shrinks per unit of the entering configuration.
func (m *fleetLP) shrinkRates(enter configuration) []float64 {
	step := make([]float64, len(m.groups))
	for k, row := range m.inverse {
		for j, n := range enter {
			step[k] += row[j] * float64(n)
		}
	}
	return step
}

func (m *fleetLP) exchange(step []float64, leave int) {
	pivot := m.inverse[leave]
	for j := range pivot {
		pivot[j] /= step[leave]
	}
	m.time[leave] /= step[leave]
	for k, row := range m.inverse {
		if k == leave || step[k] == 0 {
			continue
		}
		for j := range row {
			row[j] -= step[k] * pivot[j]
		}
		m.time[k] = max(0, m.time[k]-step[k]*m.time[leave])
	}
}

// reprice sets the prices so that each basis configuration is worth exactly its time.
func (m *fleetLP) reprice() {
	clear(m.price)
	for _, row := range m.inverse {
		for j, v := range row {
			m.price[j] += v
		}
	}
}

// configuration is a set of pods that run together, as the number of pods of each SM share.
type configuration []int

// knapsack solves a knapsack problem: it finds the configuration of highest value for every capacity up to a whole GPU.
type knapsack struct {
	worth  []float64 // by cells: the highest value that they can hold
	copies [][]int   // by kind and cells: how many of the kind that solution contains
}

func newKnapsack(kinds, cells int) knapsack {
	s := knapsack{worth: make([]float64, cells+1), copies: make([][]int, kinds)}
	for k := range s.copies {
		s.copies[k] = make([]int, cells+1)
	}
	return s
}

// bestConfiguration returns the configuration of highest value at the current prices, and that value. It contains no more pods of an
// SM share than exist.
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
