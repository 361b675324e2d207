package cluster

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
)

// Orders of nodes. FGD's simulator puts a random number of four digits before each name, another one in each run, and gives ties
// to the smallest name: a random order (docs/packing.md).
const (
	RandomOrder  = "random"   // another one for every seed
	FileOrder    = "file"     // as the list has them
	CPUPoorFirst = "cpu-poor" // fewest CPUs for a GPU first
	MostGPUs     = "gpu-rich" // most GPUs first
)

// Orders returns the names of the orders in which nodes can be listed, which decides between nodes of equal score.
func Orders() []string { return []string{RandomOrder, FileOrder, CPUPoorFirst, MostGPUs} }

// rankNodes returns the position of each node in the named order. It draws random numbers for every order, so that the pods of a seed
// arrive in the same sequence under all of them.
func rankNodes(order string, nodes []Node, random *rand.Rand) ([]int, error) {
	rank := random.Perm(len(nodes))
	var before func(a, b int) int
	switch order {
	case RandomOrder:
		return rank, nil
	case FileOrder:
		before = cmp.Compare[int]
	case CPUPoorFirst:
		before = func(a, b int) int { return cmp.Compare(cpuPerGPU(nodes[a]), cpuPerGPU(nodes[b])) }
	case MostGPUs:
		before = func(a, b int) int { return cmp.Compare(nodes[b].GPUs, nodes[a].GPUs) }
	default:
		return nil, fmt.Errorf("order %q is none of %v", order, Orders())
	}
	sorted := make([]int, len(nodes))
	for i := range sorted {
		sorted[i] = i
	}
	slices.SortStableFunc(sorted, before)
	for place, i := range sorted {
		rank[i] = place
	}
	return rank, nil
}

func cpuPerGPU(n Node) float64 { return float64(n.CPU) / float64(max(1, n.GPUs)) }
