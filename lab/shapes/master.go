package shapes

import (
	"slices"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// kind is all pods of one SM share.
type kind struct {
	sm     share.PerMille
	cells  int     // the SM share in units that all kinds are multiples of
	count  int     // no configuration holds more of them than there are
	demand float64 // stretched quotas, in windows
}

// master is the LP of the fleet with one row for each kind. Any prices yield a lower bound: the demand at those prices over the
// value of the best configuration (Farley). The bound is valid however early the simplex method ends.
type master struct {
	kinds   []kind
	cells   int
	inverse [][]float64 // of the basis, a row for each member
	time    []float64   // of each member, in GPUs
	price   []float64   // of each kind
	knapsack
}

const tiny = 1e-9

func newMaster(pods []Pod, reserve share.PerMille) *master {
	m := &master{}
	m.collect(pods, reserve)
	n := len(m.kinds)
	m.knapsack = newKnapsack(n, m.cells)
	m.time, m.price = make([]float64, n), make([]float64, n)
	for k, x := range m.kinds {
		copies := float64(min(x.count, m.cells/x.cells))
		row := make([]float64, n)
		row[k], m.time[k] = 1/copies, x.demand/copies
		m.inverse = append(m.inverse, row)
	}
	m.reprice()
	return m
}

// collect groups the pods by kind. A cell is the greatest common divisor of the SM shares.
func (m *master) collect(pods []Pod, reserve share.PerMille) {
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
		m.kinds = append(m.kinds, kind{sm, int(sm) / cell, count[sm], float64(demand[sm]) / float64(share.Whole-reserve)})
	}
}

func gcd(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// solve pivots until no configuration is worth more than its time by more than the tolerance, and returns the best bound found.
func (m *master) solve(gap float64) float64 {
	least := 0.0
	for range m.patience() {
		enter, worth := m.heaviest()
		least = max(least, m.value()/max(worth, 1))
		if worth <= 1+gap || !m.pivot(enter) {
			break
		}
	}
	return least
}

// patience returns the bound of the number of pivots. A hundred kinds need a few hundred.
func (m *master) patience() int { return 1000 + 20*len(m.kinds) }

// value returns the demand at the current prices.
func (m *master) value() float64 {
	sum := 0.0
	for k, x := range m.kinds {
		sum += x.demand * max(0, m.price[k])
	}
	return sum
}

// LowerBound returns a number of GPUs, fractional, below which no packing of the pods exists, rectangles and slots alike.
//
// It is the configuration LP over the whole fleet (docs/packing.md, fact 7): minimise the sum of x(C), where C are
// multisets of SM shares that fit one GPU and every SM share gets the sum of its pods' quotas. Two things are given away,
// which can only lower it: pods of equal SM share may pass time to each other, and a pod may be cut between GPUs. The
// memory of all pods over that of one GPU bounds it too. Rounding is below a part in 1e9.
//
// With a reserve r, a pod counts with min(1, quota/(1-r)). On a GPU that switches, configurations take at most 1-r of
// the window, which these quotas stretch to the whole; there a pod with full quota is in every configuration, and none has
// a quota between 1-r and 1. On a GPU that holds one configuration all pods may run for the whole window. Either way the
// stretched quotas fit the window, so what fits with the reserve satisfies the program.
func LowerBound(pods []Pod, memory share.Bytes, reserve share.PerMille) float64 {
	return max(newMaster(pods, reserve).solve(tiny), memoryBound(pods, memory))
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

// pivot brings a configuration into the basis; it returns false if rounding leaves no member to replace.
func (m *master) pivot(enter configuration) bool {
	step := m.direction(enter)
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

// direction returns how much each basis member shrinks for a unit of the entering configuration.
func (m *master) direction(enter configuration) []float64 {
	step := make([]float64, len(m.kinds))
	for k, row := range m.inverse {
		for j, n := range enter {
			step[k] += row[j] * float64(n)
		}
	}
	return step
}

func (m *master) exchange(step []float64, leave int) {
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

// reprice sets the prices at which each basis member is worth exactly its time.
func (m *master) reprice() {
	clear(m.price)
	for _, row := range m.inverse {
		for j, v := range row {
			m.price[j] += v
		}
	}
}
