package bound

import "math"

// Solution is the result of the program: the best prices found, and how the program uses the devices.
type Solution struct {
	problem *Problem
	classes []class
	columns []column
	Prices  *Prices
	Milli   int64   // the limit that the prices prove, in thousandths of a GPU
	Value   float64 // of the program, in GPUs and without proof; includes the rewards, if there are any
}

const (
	maxRounds   = 200
	maxVariants = 4   // combinations added per round and node type
	maxClasses  = 130 // above it, the program merges shapes with different CPU into one class
)

// Solve finds prices that prove a low limit.
func (p *Problem) Solve() Solution {
	classes := p.classesOf(true)
	if len(classes) > maxClasses {
		classes = p.classesOf(false)
	}
	m := newProgram(p, classes)
	best := Solution{problem: p, classes: classes, Milli: math.MaxInt64}
	for range maxRounds {
		m.solve()
		prices := m.prices()
		if limit := p.Limit(prices); limit < best.Milli {
			best.Milli, best.Prices = limit, prices
		}
		if !m.addCombinations() {
			break
		}
	}
	best.columns, best.Value = m.columns, m.value
	return best
}

// prices rounds the dual variables to integers. The price of a part of a device is the most that any class gains by it.
func (m *program) prices() *Prices {
	out := &Prices{}
	for t := range m.types {
		out.cpu = append(out.cpu, rounded(m.dual[m.cpuRow(t)], 10))
		out.memory = append(out.memory, rounded(m.dual[m.memoryRow(t)]*1000/1024, 10))
		row := make([]int64, len(m.sizes))
		for i, g := range m.gains(t) {
			row[i] = rounded(g.worth*1000, 100*float64(whole))
		}
		out.slot = append(out.slot, row)
	}
	return out
}

// rounded converts a price in thousandths of a GPU. It cuts prices above the worth of any resource, so that no sum over the pods or the
// nodes of a hundred openb clusters overflows.
func rounded(price, most float64) int64 { return int64(math.Round(max(0, min(price, most)) * unit)) }

// gain is the class that gains the most from a part of a device, and its gain.
type gain struct {
	class int
	worth float64
}

// gains returns, for each size, the class that gains the most from a part of this size on node type t, at the present dual variables.
func (m *program) gains(t int) []gain {
	out := make([]gain, len(m.sizes))
	for k := range m.classes {
		c := &m.classes[k]
		if !c.fits[t] || c.gpus == 0 {
			continue
		}
		worth := c.value - c.cpu*m.price(m.cpuRow(t)) - c.memory*m.price(m.memoryRow(t)) - m.price(k)
		if worth /= float64(c.gpus); worth > out[c.size].worth {
			out[c.size] = gain{k, worth}
		}
	}
	return out
}

func (m *program) price(row int) float64 { return max(0, m.dual[row]) }

// addCombinations adds, for each node type, the combination of pods on one device that gains the most, if it gains more than the device
// costs; then the best combination without the size of the first one's largest pod, and so on. It reports whether it has added any.
func (m *program) addCombinations() bool {
	found := false
	for t := range m.types {
		gains := m.gains(t)
		for i := range gains {
			if m.classes[gains[i].class].gpus > 1 {
				gains[i].worth = 0 // already has a column of its own
			}
		}
		for range maxVariants {
			worth, pods := m.combine(gains)
			if worth <= m.price(m.deviceRow(t))+1e-7 {
				break
			}
			m.columns = append(m.columns, column{node: t, gpus: 1, pods: pods})
			found = true
			gains[m.classes[pods[0].class].size].worth = 0
		}
	}
	return found
}

// combine returns the combination of pods that fits a device and gains the most.
func (m *program) combine(gains []gain) (float64, []counted) {
	var best [whole + 1]float64
	var last [whole + 1]int // 1 + the size that was added last, 0 if none
	for room := int64(1); room <= whole; room++ {
		best[room] = best[room-1]
		for i, size := range m.sizes {
			if size <= room && best[room-size]+gains[i].worth > best[room]+1e-12 {
				best[room], last[room] = best[room-size]+gains[i].worth, 1+i
			}
		}
	}
	var pods []counted
	for room := whole; room > 0; {
		if last[room] == 0 {
			room--
			continue
		}
		i := last[room] - 1
		if n := len(pods); n > 0 && pods[n-1].class == gains[i].class {
			pods[n-1].count++
		} else {
			pods = append(pods, counted{gains[i].class, 1})
		}
		room -= m.sizes[i]
	}
	return best[whole], pods
}
