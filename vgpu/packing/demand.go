package packing

// ppm is a millionth part.
type ppm int64

const one ppm = 1_000_000

// ppmMilli is a cost: milli-GPU times ppm.
type ppmMilli int64

// Demand is what pods of this cluster typically ask for, frozen for a while: ranks under one Demand compare with each other.
// The zero value knows nothing and leaves every choice to the tie-break, which is best fit.
type Demand struct {
	shapes   []typical
	sets     sets
	stranded [WholeGPU + 1]ppmMilli // W of policy D, by free SM-time of a slice
	cpuRatio MilliCPU               // ρ of policy D: CPU that goes with one GPU; 0 when unknown
	pressure map[string]ppm         // press of policy D, by device model
}

// NewDemand freezes the mix of pods that run on a cluster of the given capacity.
func NewDemand(m *Mix, c Capacity) *Demand {
	d := &Demand{shapes: m.typical(), cpuRatio: cpuRatio(m, c), pressure: pressure(m, c)}
	d.sets = setsOf(d.shapes, c)
	d.fillStranded()
	return d
}

// fillStranded computes W(r): the SM-time expected to stay unused on a slice with r free when typical one-vGPU pods keep
// coming. W(r) = r if none fits, else the mean of W(r-m) over the shapes m that fit.
func (d *Demand) fillStranded() {
	for r := range d.stranded {
		var sum, weight int64
		for i := range d.shapes {
			m := &d.shapes[i]
			if m.VGPUs == 1 && m.Milli > 0 && m.Milli <= MilliGPU(r) {
				sum += int64(m.weight) * int64(d.stranded[r-int(m.Milli)])
				weight += int64(m.weight)
			}
		}
		d.stranded[r] = ppmMilli(r) * ppmMilli(one)
		if weight > 0 {
			d.stranded[r] = ppmMilli(sum / weight)
		}
	}
}

// cpuRatio is ρ: the CPU that should stay with each free GPU. Where the pods' CPU demand at full GPU use would exceed the
// cluster, CPU is the scarcer good and ρ follows what is left of it (policy D's S term).
func cpuRatio(m *Mix, c Capacity) MilliCPU {
	if m.gpu == 0 {
		return 0
	}
	ofGPUPods := perGPU(m.cpu, m.gpu)
	ofAllPods := perGPU(c.CPU-c.FreeCPU, m.gpu)
	if float64(ofAllPods)*float64(c.GPU) <= float64(c.CPU)*float64(WholeGPU) { // in integers, a tiny mix would overflow
		return ofGPUPods
	}
	left := ofGPUPods
	if c.FreeGPU > 0 {
		left = perGPU(c.FreeCPU, c.FreeGPU)
	}
	return min(ofGPUPods*3/2, ofAllPods, max(ofGPUPods*9/10, left))
}

func perGPU(cpu MilliCPU, gpu MilliGPU) MilliCPU {
	return MilliCPU(int64(cpu) * int64(WholeGPU) / int64(gpu))
}

// maxPressure keeps a cost within a Rank, however rare a model is.
const maxPressure = 100 * one

// unseen is the demand for each model that is taken for granted before anything is seen: one pod of eight GPUs. Without it
// the first pods would fill rare models just before those that insist on them come. On openb's gpuspec33, with the mix
// learned as pods arrive, it lifts the allocation at full load from 92.2 % to 94.5 %; on the default list it costs 0.04.
const unseen = 8 * WholeGPU

// pressure is the demand that only some models can serve, spread over the capacity of those models; without demand for
// particular models it goes to zero as pods come. It counts every shape, not only the typical ones: those that insist on a
// model are many and rare.
func pressure(m *Mix, c Capacity) map[string]ppm {
	out := map[string]ppm{}
	if m.gpu <= 0 {
		return out
	}
	insist := func(models []string, demand MilliGPU) {
		able := c.of(models)
		if able == 0 {
			return
		}
		part := float64(one) * float64(demand) / float64(m.gpu) * float64(c.GPU) / float64(able)
		for _, model := range models {
			out[model] = min(maxPressure, out[model]+ppm(min(part, float64(maxPressure))))
		}
	}
	for model, gpu := range c.Models {
		insist([]string{model}, min(unseen, gpu))
	}
	for s, count := range m.counts {
		insist(splitModels(s.Models), MilliGPU(count)*MilliGPU(s.VGPUs)*s.Milli)
	}
	return out
}
