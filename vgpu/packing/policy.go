package packing

import "sync"

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

// survey is a Balance that has looked at one node and can value many choices on it. It serves one caller at a time.
type survey struct {
	Balance
	before, after view
	cost          ppmMilli // of the node as it is
	scratch       [2][16]freeSlice
}

var surveys = sync.Pool{New: func() any { return new(survey) }}

// survey looks at the node. The caller gives the survey back by done.
func (b Balance) survey(n *Node) *survey {
	s := surveys.Get().(*survey)
	s.Balance = b
	b.Demand.viewOf(n, &s.before, s.scratch[0][:0])
	s.cost = b.costOf(&s.before)
	return s
}

func (s *survey) done() {
	s.Balance = Balance{} // the pool keeps no demand alive
	surveys.Put(s)
}

// Rank implements Ranker for the node that was surveyed.
func (s *survey) Rank(n *Node, pod *Pod, picks []Choice) Rank {
	s.Demand.without(&s.before, pod, picks, &s.after, s.scratch[1][:0])
	cost := s.costOf(&s.after) - s.cost
	if s.Terms.Stranding {
		cost += s.Demand.strandedBy(picks, &s.before, &s.after) / 2
	}
	if s.Terms.Scarcity {
		cost += s.Demand.scarcity(n, pod, picks)
	}
	return rankOf(int64(cost), s.tightness(&s.after))
}

// costOf adds up the terms that value a node as a whole.
func (b Balance) costOf(v *view) ppmMilli {
	var cost ppmMilli
	if b.Terms.Fragmentation {
		cost += b.Demand.fragmentation(v)
	}
	if b.Terms.CPUShortage {
		cost += b.Demand.cpuShortage(v)
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

// maxCPU is the most that a node's CPU counts in tightness. It leaves room in a rank for the time of 32 slices: where pods ask
// for hardly any CPU, that of a node is worth more GPUs than there are.
const maxCPU = tieMax - 32*int64(WholeGPU)

// tightness is what stays free on the node, GPU and CPU on one scale: the less, the better the fit.
func (b Balance) tightness(v *view) int64 {
	left := int64(v.time())
	if ratio := int64(b.Demand.cpuRatio); ratio > 0 {
		left += min(maxCPU, int64(max(v.cpu, 0))*int64(WholeGPU)/ratio)
	}
	return left
}
