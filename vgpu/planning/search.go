package planning

import (
	"math"
	"math/bits"
	"slices"

	"github.com/gshare-dev/gshare/vgpu/batching"
	"github.com/gshare-dev/gshare/vgpu/profile"
)

// exactLimit is the number of applications up to which all partitions into groups are searched: 2^10 groups and 3^10/2 ways to take a
// subset.
const exactLimit = 10

func cheapest(o provisioner, sorted []Application) []Group {
	if len(sorted) <= exactLimit {
		return cheapestSets(o, sorted)
	}
	return improve(o, cheapestRuns(o, sorted))
}

// cheapestSets returns an optimal partition of the applications into groups, by dynamic programming over subsets. Groups need not be
// neighbours in the order of urgency: rare urgent requests may share a batch with frequent less urgent ones, or use what those leave of a
// reserved share.
func cheapestSets(o provisioner, sorted []Application) []Group {
	all := 1<<len(sorted) - 1
	alone, best, group := make([]Cost, all+1), make([]Cost, all+1), make([]int, all+1)
	for set := 1; set <= all; set++ {
		alone[set] = o.provision(newDemand(members(sorted, set))).cost
		best[set] = Cost(math.Inf(1))
		first := set & -set
		others := set &^ first
		for rest := others; ; rest = (rest - 1) & others {
			if cost := alone[set&^rest] + best[rest]; cost < best[set] {
				best[set], group[set] = cost, set&^rest
			}
			if rest == 0 {
				break
			}
		}
	}
	var groups []Group
	for set := all; set > 0; set &^= group[set] {
		own := members(sorted, group[set])
		groups = append(groups, newGroup(own, o.provision(newDemand(own))))
	}
	return groups
}

func members(sorted []Application, set int) []Application {
	own := make([]Application, 0, bits.OnesCount(uint(set)))
	for ; set > 0; set &= set - 1 {
		own = append(own, sorted[bits.TrailingZeros(uint(set))])
	}
	return own
}

// cheapestRuns returns the partition of the sorted applications into contiguous groups with the least total cost, by dynamic programming
// over prefixes.
func cheapestRuns(o provisioner, sorted []Application) []Group {
	best := make([]Cost, len(sorted)+1)
	from := make([]int, len(sorted)+1)
	for j := range sorted {
		best[j+1] = Cost(math.Inf(1))
	}
	for i := range sorted {
		var e batching.TimeoutAccumulator
		for j := i; j < len(sorted); j++ {
			e.Add(batching.Class{Timeout: float64(sorted[j].SLO), Rate: sorted[j].Rate})
			d := demand{sorted[i].SLO, e.Rate(), profile.Seconds(e.Timeout())}
			if cost := best[i] + o.provision(d).cost; cost < best[j+1] {
				best[j+1], from[j+1] = cost, i
			}
		}
	}
	var groups []Group
	for j := len(sorted); j > 0; j = from[j] {
		run := sorted[from[j]:j]
		groups = append(groups, newGroup(run, o.provision(newDemand(run))))
	}
	slices.Reverse(groups)
	return groups
}
