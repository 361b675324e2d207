package cluster

import (
	"math"

	"github.com/gshare-dev/gshare/vgpu/packing"
)

// gradient is FGD, fragmentation gradient descent: it places a pod where F grows least. Scores are integers,
// trunc(100 sigmoid(-growth / 1000)), as in its simulator, so that differences below about 40 thousandths of a GPU are ties.
type gradient struct {
	demands map[string]*demand
	scratch []packing.MilliGPU
}

func newGradient(s *Simulation, draw bool) policy {
	g := &gradient{demands: s.demands()}
	return &board{Simulation: s, score: g.score, gpus: g.gpus, draw: draw}
}

func (g *gradient) score(m *machine, p *Pod) int {
	score, _ := g.best(m, p)
	return score
}

func (g *gradient) gpus(m *machine, p *Pod) []int {
	_, gpus := g.best(m, p)
	return gpus
}

// best returns the GPUs with the least growth of F: each GPU is tried for a part of one; whole GPUs are equal.
func (g *gradient) best(m *machine, p *Pod) (score int, gpus []int) {
	d := g.demands[m.Model]
	before := d.fragmentation(m.cpu, m.free)
	if p.GPUs != 1 || p.Milli == packing.WholeGPU {
		gpus = m.tightest(p)
		return descent(before - g.after(d, m, p, gpus)), gpus
	}
	score = -1
	for i, free := range m.free {
		if free < p.Milli {
			continue
		}
		if s := descent(before - g.after(d, m, p, []int{i})); s > score {
			score, gpus = s, []int{i}
		}
	}
	return score, gpus
}

func descent(fall float64) int { return int(100 / (1 + math.Exp(-fall/1000))) }

// after returns F with the pod on these GPUs.
func (g *gradient) after(d *demand, m *machine, p *Pod, gpus []int) float64 {
	g.scratch = append(g.scratch[:0], m.free...)
	for _, i := range gpus {
		g.scratch[i] -= p.Milli
	}
	return d.fragmentation(m.cpu-p.CPU, g.scratch)
}

// anyGPU returns a random GPU with enough free; whole GPUs are equal.
func (s *Simulation) anyGPU(m *machine, p *Pod) []int {
	var able []int
	for i, free := range m.free {
		if free >= p.Milli {
			able = append(able, i)
		}
	}
	return []int{able[s.random.IntN(len(able))]}
}
