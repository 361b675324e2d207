package cluster

import (
	"cmp"
	"slices"
	"strings"

	"github.com/gshare-dev/gshare/vgpu/packing"
)

// typical is a popular shape of pod and the part of the pods that have it. FGD regards CPU, GPUs and model, not memory.
type typical struct {
	cpu    packing.MilliCPU
	milli  packing.MilliGPU
	gpus   int
	models string // joined by |
	part   float64
}

func (t typical) compare(o typical) int {
	return cmp.Or(cmp.Compare(t.cpu, o.cpu), cmp.Compare(t.milli, o.milli), cmp.Compare(t.gpus, o.gpus), cmp.Compare(t.models, o.models))
}

// coverage is the part of the list that the typical shapes cover: 95 %, as in FGD's experiments.
const coverage = 0.95

// typicalOf returns the typical pods of the list, those without GPUs included, the most popular first.
func typicalOf(pods []Pod) []typical {
	counts := map[typical]int{}
	for i := range pods {
		p := &pods[i]
		counts[typical{cpu: p.CPU, milli: p.Milli, gpus: p.GPUs, models: strings.Join(p.Models, "|")}]++
	}
	all := make([]typical, 0, len(counts))
	for t, n := range counts {
		t.part = float64(n)
		all = append(all, t)
	}
	slices.SortFunc(all, func(a, b typical) int { return cmp.Or(cmp.Compare(b.part, a.part), b.compare(a)) })
	return mostPopular(all, coverage*float64(len(pods)))
}

// mostPopular cuts the list at the coverage and turns counts into parts.
func mostPopular(all []typical, enough float64) []typical {
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

// demand is the typical pods that can use GPUs of one model.
type demand struct {
	able  []typical // those that accept the model
	other float64   // part of those that do not, or that want no GPU at all: all that is idle is no use to them
}

func demandFor(model string, all []typical) *demand {
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

// fragmentation returns F of FGD (ATC'23, section 3): the idle GPU of a machine that a random typical pod could not use: all of it
// if the pod does not fit, else that of the GPUs that are too small for it.
func (d *demand) fragmentation(cpu packing.MilliCPU, free []packing.MilliGPU) float64 {
	var total packing.MilliGPU
	for _, f := range free {
		total += f
	}
	sum := d.other * float64(total)
	for i := range d.able {
		t := &d.able[i]
		sum += t.part * float64(total-t.usable(cpu, free))
	}
	return sum
}

func (t *typical) usable(cpu packing.MilliCPU, free []packing.MilliGPU) packing.MilliGPU {
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

// fragmentation returns the sum of F over the machines.
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
