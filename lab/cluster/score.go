package cluster

import (
	"slices"

	"github.com/gshare-dev/gshare/vgpu/packing"
)

// The largest machine that FGD's simulator reckons with; scores are scaled by it.
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

// clustering scores a machine by whether it runs pods with the same number of GPUs (Gandiva): first machines that run only such pods, then
// those that also run others, then empty ones, then the remaining ones. Of equal machines the fullest scores highest.
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
