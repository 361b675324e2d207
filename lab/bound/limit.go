package bound

import "math"

// unit is the number of steps of a price for each thousandth of a GPU.
const unit = 1 << 20

// Prices are the dual variables of the program, in thousandths of a GPU over unit. They are integers so that a limit is exact.
type Prices struct {
	cpu, memory []int64   // by node type: of a thousandth of a core, of a MiB
	slot        [][]int64 // by node type and size, as in Problem.sizes: of that part of a device
}

// Limit returns, in thousandths of a GPU, what no selection and placement of the pods exceeds. Every pod that must be accepted is in the
// selection; the limit may be negative if no placement has them all. It holds for any prices that are not negative:
//
// Take an admissible placement. A pod of shape s on a node of type t brings its GPU time g(s), and uses CPU, memory and parts of
// devices worth w(s,t) at the prices of t. So the sum of g is at most the worth of all that is used, plus, for each pod, the surplus
// g(s) - w(s,t). CPU and memory that are used are worth no more than all there are; the parts used of a device no more than the
// best combination of sizes that fills one. The surplus of a pod is at most its best over all types that can hold it, and zero if it may
// be left out.
func (p *Problem) Limit(prices *Prices) int64 {
	total := int64(0)
	for t, n := range p.types {
		total += n.count * (n.cpu*prices.cpu[t] + n.memory*prices.memory[t] + n.gpus*p.bestDevice(prices.slot[t]))
	}
	for i := range p.shapes {
		s := &p.shapes[i]
		surplus := p.surplus(s, prices)
		if !s.must || surplus == math.MinInt64 {
			surplus = max(surplus, 0)
		}
		total += s.demand * surplus
	}
	return min(total/unit, p.capacity) // rounds down: an allocation is a whole number
}

// surplus returns the highest difference between what a pod brings and what it uses, over the node types that can hold it. It is the
// lowest integer if there are none.
func (p *Problem) surplus(s *shape, prices *Prices) int64 {
	best := int64(math.MinInt64)
	for t, fits := range s.fits {
		if !fits {
			continue
		}
		worth := s.cpu*prices.cpu[t] + s.memory*prices.memory[t]
		if s.gpus > 0 {
			worth += s.gpus * prices.slot[t][p.sizeIndex(s.milli)]
		}
		best = max(best, s.gpu()*unit-worth)
	}
	return best
}

func (p *Problem) sizeIndex(milli int64) int {
	for i, size := range p.sizes {
		if size == milli {
			return i
		}
	}
	return -1
}

// bestDevice returns the worth of the combination of sizes that fits a device and is worth most: an unbounded knapsack.
func (p *Problem) bestDevice(worth []int64) int64 {
	var best [whole + 1]int64
	for room := int64(1); room <= whole; room++ {
		best[room] = best[room-1]
		for i, size := range p.sizes {
			if size <= room {
				best[room] = max(best[room], best[room-size]+worth[i])
			}
		}
	}
	return best[whole]
}
