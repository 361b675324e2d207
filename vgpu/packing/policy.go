package packing

// Terms are the parts of policy D; each can be switched off. With none, nodes and slices are chosen by best fit.
type Terms struct {
	Fragmentation bool // F: keep what is free usable for typical pods
	Stranding     bool // W: avoid leaving slivers on a slice
	CPUShortage   bool // S: keep CPU with the free GPUs
	Scarcity      bool // press: keep models that some pods insist on
}

// AllTerms is policy D.
var AllTerms = Terms{Fragmentation: true, Stranding: true, CPUShortage: true, Scarcity: true}

// Balance is policy D: it ranks a choice by what it costs the pods to come,
//
//	F(after) - F(before) + (W(after) - W(before))/2 + S(after) - S(before) + gpu x press(model),
//
// and ties by the least GPU and CPU left on the node, which is best fit.
type Balance struct {
	Terms  Terms
	Demand *Demand
}

// Rank implements Ranker.
func (b Balance) Rank(n *Node, pod *Pod, picks []Choice) Rank {
	s := b.survey(n)
	defer s.done()
	return s.Rank(n, pod, picks)
}

// strandedBy is the change of W over the slices picked.
func (d *Demand) strandedBy(turns []turn) ppmMilli {
	var sum ppmMilli
	for i := range turns {
		sum += d.stranded[turns[i].after.time] - d.stranded[turns[i].before.time]
	}
	return sum
}

func seenBefore(picks []Choice, slice int) bool {
	for _, p := range picks {
		if p.Slice == slice {
			return true
		}
	}
	return false
}

// scarcity is what the pod takes of each slice times the pressure on its model.
func (v *view) scarcity(pod *Pod, picks []Choice) ppmMilli {
	var sum ppmMilli
	for _, p := range picks {
		gpu := milli(pod.Request.Containers[p.Container].Share.RequestArea())
		sum += ppmMilli(gpu) * ppmMilli(v.slices[p.Slice].pressure)
	}
	return sum
}

// maxCPU is the most that a node's CPU counts in tightness. It leaves room in a rank for the time of 32 slices: where pods ask
// for hardly any CPU, that of a node is worth more GPUs than there are.
const maxCPU = tieMax - 32*int64(WholeGPU)

// tightness is what stays free on the node, GPU and CPU on one scale: the less, the better the fit.
func (b Balance) tightness(time MilliGPU, cpu MilliCPU) int64 {
	left := int64(time)
	if ratio := int64(b.Demand.cpuRatio); ratio > 0 {
		left += min(maxCPU, int64(max(cpu, 0))*int64(WholeGPU)/ratio)
	}
	return left
}
