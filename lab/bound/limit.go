package bound

import "math"

// unit is the number of steps of a price per thousandth of a GPU.
const unit = 1 << 20

// Prices are the dual variables of the program, in thousandths of a GPU times unit. They are integers so that a limit is exact.
type Prices struct {
	cpu, memory []int64   // by node type: price of a thousandth of a core, and of a MiB
	slot        [][]int64 // by node type and index into Problem.sizes: price of a part of a device of that size
}

// Limit returns an upper bound, in thousandths of a GPU, of what any selection and placement of the pods allocates. The selection must
// contain every pod that must be accepted; the limit may be negative if no placement has them all. It holds for any non-negative prices:
//
// Take an admissible placement. A pod of shape s on a node of type t contributes its GPU time g(s), and uses CPU, memory and parts of
// devices that are worth w(s,t) at the prices of t. The sum of g is therefore at most the worth of everything used plus the sum of the
// surpluses g(s) - w(s,t) of the pods. The CPU and memory used are worth no more than all there is; the parts used of a device are worth
// no more than the best combination of sizes that fills a device. The surplus of a pod is at most the best one over all types that can
// hold it, and counts as zero if it is negative and the pod may be left out.
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
	return min(total/unit, p.capacity) // rounds down, because an allocation is a whole number
}

// surplus returns the highest difference between what a pod contributes and the worth of what it uses, over the node types that can
// hold it. It returns the lowest integer if there are none.
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

// bestDevice returns the worth of the most valuable combination of sizes that fits a device: an unbounded knapsack.
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
