package cluster

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/gshare-dev/gshare/vgpu/packing"
)

// The largest machine in FGD's simulator, by which scores are scaled.
const (
	mostCPU packing.MilliCPU = 128_000
	mostGPU packing.MilliGPU = 8 * packing.WholeGPU
)

func indifferent(*machine, *Pod) int { return 0 }

// bestFit scores a machine by how little CPU and GPU stays free: the mean of both, each as a fraction of the largest machine.
func bestFit(m *machine, p *Pod) int {
	cpu, gpu := float64(m.cpu-p.CPU)/float64(mostCPU), float64(m.left-p.gpu())/float64(mostGPU)
	return int((1 - cpu/2 - gpu/2) * 100)
}

// dotProduct scores a machine by how little it has free of what the pod requests (Tetris' alignment, reversed as in FGD).
func dotProduct(m *machine, p *Pod) int {
	cpu := float64(m.cpu) / float64(mostCPU) * float64(p.CPU) / float64(mostCPU)
	gpu := float64(m.left) / float64(mostGPU) * float64(p.gpu()) / float64(mostGPU)
	return int((1 - (cpu+gpu)/2) * 100)
}

// clustering scores a machine by whether it runs pods with the same number of GPUs (Gandiva): machines that run only such pods come first,
// then those that also run others, then empty ones, then the rest. Among equal machines the fullest scores highest.
func clustering(m *machine, p *Pod) int {
	kind := kindOf(p)
	if kind == 0 {
		return 0
	}
	base := 0
	switch has := slices.Contains(m.kinds, kind); {
	case has && len(m.kinds) == 1:
		base = 75
	case has:
		base = 50
	case len(m.kinds) == 0:
		base = 25
	}
	return base + int(25*(mostGPU-m.left)/mostGPU)
}

// packingScore prefers used GPUs, the fullest first, then unused GPUs of a used machine, then an empty machine.
func packingScore(m *machine, p *Pod) int {
	unused := m.unusedGPUs()
	switch {
	case p.GPUs == 0:
		return 0
	case unused == m.GPUs:
		return max(33-unused, unused)
	}
	var breaks, left int
	for _, g := range m.tightestGPUs(p) {
		if m.free[g] == packing.WholeGPU {
			breaks++
		}
		left += int(m.free[g] * 100 / packing.WholeGPU)
	}
	if breaks > 0 {
		return max(50-breaks, 33)
	}
	return max(100-left/10, 50)
}

// policies maps the name of each policy to its constructor. All but firstfit and gshare are those of FGD's evaluation, with its integer
// scores.
var policies = map[string]func(*Simulation) policy{
	"random": func(s *Simulation) policy {
		return &scoredPolicy{Simulation: s, score: indifferent, draw: true, gpus: s.randomGPU}
	},
	"firstfit":   func(s *Simulation) policy { return &scoredPolicy{Simulation: s, score: indifferent} },
	"bestfit":    func(s *Simulation) policy { return &scoredPolicy{Simulation: s, score: bestFit} },
	"dotproduct": func(s *Simulation) policy { return &scoredPolicy{Simulation: s, score: dotProduct} },
	"clustering": func(s *Simulation) policy { return &scoredPolicy{Simulation: s, score: clustering} },
	"packing":    func(s *Simulation) policy { return &scoredPolicy{Simulation: s, score: packingScore} },
	"fgd":        func(s *Simulation) policy { return newFGD(s, false) },
	"fgd-stock":  func(s *Simulation) policy { return newFGD(s, true) },
	"gshare":     func(s *Simulation) policy { return newGsharePolicy(s) },
}

// Policies returns the names of the policies: gshare's, then the published ones.
func Policies() []string {
	return []string{"gshare", "random", "firstfit", "bestfit", "dotproduct", "clustering", "packing", "fgd", "fgd-stock"}
}

// Orders of nodes. FGD's simulator prefixes each name with a random number of four digits, newly drawn in each run, and gives
// ties to the smallest name: a random order (docs/packing.md).
const (
	RandomOrder  = "random"   // a different one for every seed
	FileOrder    = "file"     // as in the list
	CPUPoorFirst = "cpu-poor" // fewest CPUs per GPU first
	MostGPUs     = "gpu-rich" // most GPUs first
)

// Orders returns the names of the orders of nodes. The order decides between nodes of equal score.
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
