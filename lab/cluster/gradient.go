package cluster

import (
	"math"

	"github.com/gshare-dev/gshare/vgpu/packing"
)

// fgd is the policy FGD, fragmentation gradient descent: it places a pod where fragmentation F grows least. Scores are integers, trunc(100
// sigmoid(-growth / 1000)), as in FGD's simulator, so that differences below about 40 thousandths of a GPU are ties.
type fgd struct {
	demands map[string]*demand
	scratch []packing.MilliGPU
}

func newFGD(s *Simulation, draw bool) policy {
	g := &fgd{demands: s.demands()}
	return &scoredPolicy{Simulation: s, score: g.score, gpus: g.gpus, draw: draw}
}

func (g *fgd) score(m *machine, p *Pod) int {
	score, _ := g.bestGPUs(m, p)
	return score
}

func (g *fgd) gpus(m *machine, p *Pod) []int {
	_, gpus := g.bestGPUs(m, p)
	return gpus
}

// bestGPUs returns the GPUs of a machine on which the pod increases fragmentation least, and their score. It tries each GPU for a part of
// one; whole GPUs are interchangeable.
func (g *fgd) bestGPUs(m *machine, p *Pod) (score int, gpus []int) {
	d := g.demands[m.Model]
	before := d.fragmentation(m.cpu, m.free)
	if p.GPUs != 1 || p.Milli == packing.WholeGPU {
		gpus = m.tightestGPUs(p)
		return descent(before - g.fragmentationWith(d, m, p, gpus)), gpus
	}
	score = -1
	for i, free := range m.free {
		if free < p.Milli {
			continue
		}
		if s := descent(before - g.fragmentationWith(d, m, p, []int{i})); s > score {
			score, gpus = s, []int{i}
		}
	}
	return score, gpus
}

func descent(fall float64) int { return int(100 / (1 + math.Exp(-fall/1000))) }

// fragmentationWith returns the fragmentation of the machine with the pod placed on the given GPUs.
func (g *fgd) fragmentationWith(d *demand, m *machine, p *Pod, gpus []int) float64 {
	g.scratch = append(g.scratch[:0], m.free...)
	for _, i := range gpus {
		g.scratch[i] -= p.Milli
	}
	return d.fragmentation(m.cpu-p.CPU, g.scratch)
}

// randomGPU returns a random GPU of the machine with enough free for the pod.
func (s *Simulation) randomGPU(m *machine, p *Pod) []int {
	var able []int
	for i, free := range m.free {
		if free >= p.Milli {
			able = append(able, i)
		}
	}
	return []int{able[s.random.IntN(len(able))]}
}
