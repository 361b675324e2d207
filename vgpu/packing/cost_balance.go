package packing

import (
	"sync"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// Terms selects the parts of policy D. Without any, nodes and slices are chosen by best fit.
type Terms struct {
	Fragmentation bool // F: keep what is free usable for typical pods
	Stranding     bool // W: avoid remainders that no typical pod fits
	CPUShortage   bool // S: keep CPU with the free GPUs
	Scarcity      bool // keep models that some pods require
}

// AllTerms is policy D.
var AllTerms = Terms{Fragmentation: true, Stranding: true, CPUShortage: true, Scarcity: true}

// Balance is policy D: it ranks a choice by what it costs the pods to come,
//
//	F(after) - F(before) + (W(after) - W(before))/2 + S(after) - S(before) + GPU x scarcity(model),
//
// and ties by the least GPU and CPU left on the node, which is best fit. docs/packing.md defines the terms.
type Balance struct {
	Terms  Terms
	Demand *Demand
}

// Rank implements Ranker.
func (b Balance) Rank(n *Node, pod *Pod, picks []Choice) Rank {
	s := b.costsOf(n)
	defer s.release()
	return s.Rank(n, pod, picks)
}

// strandingOf returns the change of W over the slices that are picked.
func (d *Demand) strandingChange(changed []sliceChange) ppmMilli {
	var sum ppmMilli
	for i := range changed {
		sum += d.stranded[changed[i].after.time] - d.stranded[changed[i].before.time]
	}
	return sum
}

// chosenBefore reports whether one of the picks is on the slice.
func hasPickOn(picks []Choice, slice int) bool {
	for _, p := range picks {
		if p.Slice == slice {
			return true
		}
	}
	return false
}

// scarcity returns what the pod takes of each slice times the scarcity of its model.
func (v *nodeView) scarcityCost(pod *Pod, picks []Choice) ppmMilli {
	var sum ppmMilli
	for _, p := range picks {
		gpu := milliGPUOf(pod.Request.Containers[p.Container].Share.RequestArea())
		sum += ppmMilli(gpu) * ppmMilli(v.slices[p.Slice].scarcity)
	}
	return sum
}

// maxCPU is the most that the CPU of a node adds to tightness, so that the SM-time of 32 slices fits beside it: where pods hardly
// request CPU, the CPU of a node corresponds to more GPUs than there are.
const maxRemainingCPU = tieMax - 32*int64(WholeGPU)

// tightness returns what stays free on the node, GPU and CPU on one scale; less is a better fit.
func (b Balance) remainder(time MilliGPU, cpu MilliCPU) int64 {
	left := int64(time)
	if ratio := int64(b.Demand.cpuRatio); ratio > 0 {
		left += min(maxRemainingCPU, int64(max(cpu, 0))*int64(WholeGPU)/ratio)
	}
	return left
}

// survey holds the precomputed costs of one node under a Balance, used for many candidate placements on it. It is immutable.
type nodeCosts struct {
	Balance
	before nodeView
	cost   ppmMilli // of the node as it is
	slices [16]freeSlice
}

// surveys recycles surveys.
var nodeCostsPool = sync.Pool{New: func() any { return new(nodeCosts) }}

// survey returns the precomputed costs of placing pods on the node. The caller must call done when it no longer uses them.
func (b Balance) costsOf(n *Node) *nodeCosts {
	s := nodeCostsPool.Get().(*nodeCosts)
	s.compute(b, n)
	return s
}

// done returns the survey to the pool.
func (s *nodeCosts) release() {
	s.Balance = Balance{} // the pool keeps no demand alive
	nodeCostsPool.Put(s)
}

// read values the node.
func (s *nodeCosts) compute(b Balance, n *Node) {
	s.Balance = b
	b.Demand.fillView(n, &s.before, s.slices[:0])
	s.cost = s.costAfter(nil, 0, 0)
}

// Rank implements Ranker for the surveyed node, whatever node it is called with.
func (s *nodeCosts) Rank(_ *Node, pod *Pod, picks []Choice) Rank {
	var space [1]sliceChange // of most pods
	changed := s.Demand.sliceChanges(&s.before, pod, picks, space[:0])
	cost := s.costAfter(changed, pod.CPU, pod.RAM) - s.cost
	if s.Terms.Stranding {
		cost += s.Demand.strandingChange(changed) / 2
	}
	if s.Terms.Scarcity {
		cost += s.before.scarcityCost(pod, picks)
	}
	return rankOf(int64(cost), s.remainder(s.before.freeTimeAfter(changed), s.before.cpu-pod.CPU))
}

// costAfter returns the sum of F and S once the slices have changed and the CPU and memory are taken.
func (s *nodeCosts) costAfter(changed []sliceChange, cpu MilliCPU, ram share.Bytes) ppmMilli {
	var cost ppmMilli
	if s.Terms.Fragmentation {
		cost += s.Demand.fragmentationAfter(&s.before, changed, cpu, ram)
	}
	if s.Terms.CPUShortage {
		cost += s.Demand.cpuShortage(s.before.freeTimeAfter(changed), s.before.cpu-cpu)
	}
	return cost
}
