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
	var scratch [2][16]freeSlice
	before := b.Demand.viewOf(n, scratch[0][:0])
	after := before.without(pod, picks, scratch[1][:0])
	return rankOf(int64(b.cost(n, pod, picks, &before, &after)), b.tightness(&after))
}

func (b Balance) cost(n *Node, pod *Pod, picks []Choice, before, after *view) ppmMilli {
	var cost ppmMilli
	if b.Terms.Fragmentation {
		cost += b.Demand.fragmentation(after) - b.Demand.fragmentation(before)
	}
	if b.Terms.Stranding {
		cost += b.Demand.strandedBy(picks, before, after) / 2
	}
	if b.Terms.CPUShortage {
		cost += b.Demand.cpuShortage(after) - b.Demand.cpuShortage(before)
	}
	if b.Terms.Scarcity {
		cost += b.Demand.scarcity(n, pod, picks)
	}
	return cost
}

// strandedBy is the change of W over the slices picked.
func (d *Demand) strandedBy(picks []Choice, before, after *view) ppmMilli {
	var sum ppmMilli
	for i, p := range picks {
		if seenBefore(picks[:i], p.Slice) {
			continue
		}
		sum += d.stranded[after.slices[p.Slice].time] - d.stranded[before.slices[p.Slice].time]
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

func (d *Demand) scarcity(n *Node, pod *Pod, picks []Choice) ppmMilli {
	var sum ppmMilli
	for _, p := range picks {
		gpu := milli(pod.Request.Containers[p.Container].Share.RequestArea())
		sum += ppmMilli(gpu) * ppmMilli(d.pressure[n.Slices[p.Slice].Model])
	}
	return sum
}

// tightness is what stays free on the node, GPU and CPU on one scale: the less, the better the fit.
func (b Balance) tightness(v *view) int64 {
	left := int64(v.time())
	if ratio := int64(b.Demand.cpuRatio); ratio > 0 {
		left += int64(max(v.cpu, 0)) * int64(WholeGPU) / ratio
	}
	return left
}

// without is the view after the pod has taken its picks.
func (v *view) without(pod *Pod, picks []Choice, scratch []freeSlice) view {
	out := view{slices: append(scratch[:0], v.slices...), cpu: v.cpu - pod.CPU, ram: v.ram - pod.RAM}
	for _, p := range picks {
		sh := pod.Request.Containers[p.Container].Share
		s := &out.slices[p.Slice]
		s.time = max(0, s.time-milli(sh.RequestArea()))
		s.memory -= sh.Memory
	}
	return out
}
