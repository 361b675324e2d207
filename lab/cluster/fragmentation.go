package cluster

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"github.com/gshare-dev/gshare/vgpu/packing"
)

// typicalPod is a popular pod request and the fraction of the pods that have it. FGD compares CPU, GPUs and accepted models, but not
// memory.
type typicalPod struct {
	cpu    packing.MilliCPU
	milli  packing.MilliGPU
	gpus   int
	models string // joined by |
	part   float64
}

func (t typicalPod) compare(o typicalPod) int {
	return cmp.Or(cmp.Compare(t.cpu, o.cpu), cmp.Compare(t.milli, o.milli), cmp.Compare(t.gpus, o.gpus), cmp.Compare(t.models, o.models))
}

// coverage is the fraction of the pods that typical requests cover: 95 %, as in FGD's experiments.
const coverage = 0.95

// typicalPods returns the typical requests of a list of pods, the most popular first. It includes pods without GPUs.
func typicalPods(pods []Pod) []typicalPod {
	counts := map[typicalPod]int{}
	for i := range pods {
		p := &pods[i]
		counts[typicalPod{cpu: p.CPU, milli: p.Milli, gpus: p.GPUs, models: strings.Join(p.Models, "|")}]++
	}
	all := make([]typicalPod, 0, len(counts))
	for t, n := range counts {
		t.part = float64(n)
		all = append(all, t)
	}
	slices.SortFunc(all, func(a, b typicalPod) int { return cmp.Or(cmp.Compare(b.part, a.part), b.compare(a)) })
	return mostPopular(all, coverage*float64(len(pods)))
}

// mostPopular returns the first requests that together cover the fraction enough of the pods, with counts converted to fractions.
func mostPopular(all []typicalPod, enough float64) []typicalPod {
	var covered float64
	n := 0
	for ; n < len(all) && covered < enough; n++ {
		covered += all[n].part
	}
	for i := range all[:n] {
		all[i].part /= covered
	}
	return all[:n]
}

// demand divides the typical pods by whether they can use GPUs of one model, for FGD's measure of fragmentation: those that accept the
// model, and the fraction of all others.
type demand struct {
	able  []typicalPod // those that accept the model
	other float64      // fraction of pods that do not, or that want no GPU: all idle GPUs are useless to them
}

func demandFor(model string, all []typicalPod) *demand {
	d := &demand{}
	for _, t := range all {
		if t.gpus > 0 && (t.models == "" || slices.Contains(strings.Split(t.models, "|"), model)) {
			d.able = append(d.able, t)
		} else {
			d.other += t.part
		}
	}
	return d
}

// fragmentation returns F of FGD (ATC'23, section 3) for a machine with the given free CPU and free GPUs: the amount of free GPU
// that a random typical pod could not use. If the pod does not fit, that is all free GPU; otherwise it is that of the GPUs that are
// too small for the pod.
func (d *demand) fragmentation(cpu packing.MilliCPU, free []packing.MilliGPU) float64 {
	var total packing.MilliGPU
	for _, f := range free {
		total += f
	}
	sum := d.other * float64(total)
	for i := range d.able {
		t := &d.able[i]
		sum += t.part * float64(total-t.usableGPU(cpu, free))
	}
	return sum
}

func (t *typicalPod) usableGPU(cpu packing.MilliCPU, free []packing.MilliGPU) packing.MilliGPU {
	if t.cpu > cpu {
		return 0
	}
	var sum packing.MilliGPU
	able := 0
	for _, f := range free {
		if f >= t.milli {
			sum += f
			able++
		}
	}
	if able < t.gpus {
		return 0
	}
	return sum
}

// fragmentation returns the sum of FGD's F over all machines.
func (s *Simulation) fragmentation() float64 {
	demands := s.demands()
	var sum float64
	for _, m := range s.machines {
		sum += demands[m.Model].fragmentation(m.cpu, m.free)
	}
	return sum
}

func (s *Simulation) demands() map[string]*demand {
	out := map[string]*demand{}
	for _, m := range s.machines {
		if out[m.Model] == nil {
			out[m.Model] = demandFor(m.Model, s.typical)
		}
	}
	return out
}

// fgd is the policy FGD, fragmentation gradient descent: it places a pod where the fragmentation F grows least. Scores are integers,
// trunc(100 sigmoid(-growth / 1000)), as in FGD's simulator, so differences below about 40 thousandths of a GPU are ties.
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
