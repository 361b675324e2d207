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
	stranded [WholeGPU + 1]ppmMilli // W of policy D, by free SM-time of a slice
	cpuRatio MilliCPU               // ρ of policy D: CPU that goes with one GPU; 0 when unknown
	pressure map[string]ppm         // press of policy D, by device model
}

// NewDemand freezes the mix of pods that run on a cluster of the given capacity.
func NewDemand(m *Mix, c Capacity) *Demand {
	d := &Demand{shapes: m.typical(), cpuRatio: cpuRatio(m, c)}
	d.pressure = pressure(d.shapes, c)
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

// accepted is the set of typical shapes, by index, that may run on a slice of this kind and model.
func (d *Demand) accepted(s *Slice) uint64 {
	var set uint64
	for i := range d.shapes {
		if d.shapes[i].accepts(s) {
			set |= 1 << i
		}
	}
	return set
}

// cpuRatio is ρ: the CPU that should stay with each free GPU. Where the pods' CPU demand at full GPU use would exceed the
// cluster, CPU is the scarcer good and ρ follows what is left of it (policy D's S term).
func cpuRatio(m *Mix, c Capacity) MilliCPU {
	if m.gpu == 0 {
		return 0
	}
	ofGPUPods := perGPU(m.cpu, m.gpu)
	ofAllPods := perGPU(c.CPU-c.FreeCPU, m.gpu)
	if int64(ofAllPods)*int64(c.GPU) <= int64(c.CPU)*int64(WholeGPU) {
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

// pressure is the demand that only some models can serve, spread over the capacity of those models; without demand for
// particular models it is zero everywhere.
func pressure(shapes []typical, c Capacity) map[string]ppm {
	var total int64
	for i := range shapes {
		total += shapes[i].demand()
	}
	out := map[string]ppm{}
	for i := range shapes {
		m := &shapes[i]
		able := m.capacity(c)
		if len(m.models) == 0 || able == 0 || total == 0 {
			continue
		}
		for _, model := range m.models {
			out[model] += ppm(float64(one) * float64(m.demand()) / float64(total) * float64(c.GPU) / float64(able))
		}
	}
	return out
}
