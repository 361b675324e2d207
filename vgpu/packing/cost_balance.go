package packing

import (
	"sync"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// Terms selects which costs policy D (gshare's choice between nodes) adds up. With none selected, nodes and slices are chosen by best fit.
type Terms struct {
	Fragmentation bool // F: keep what is free usable for typical pods
	Stranding     bool // W: avoid remainders that no typical pod fits
	CPUShortage   bool // S: keep CPU with the free GPUs
	Scarcity      bool // keep models that some pods require
}

// AllTerms selects every cost of policy D.
var AllTerms = Terms{Fragmentation: true, Stranding: true, CPUShortage: true, Scarcity: true}

// Balance is the Ranker of policy D, gshare's choice between nodes. The cost of a placement is what it takes from future pods,
//
//	F(after) - F(before) + (W(after) - W(before))/2 + S(after) - S(before) + GPU x scarcity(model),
//
// with F fragmentation, W stranding and S shortage of CPU. Of equal costs the placement that leaves the least GPU and CPU free is better
// (best fit). docs/packing.md defines the terms.
type Balance struct {
	Terms  Terms
	Demand *Demand
}

// Rank returns the cost, under policy D, of placing the pod's vGPUs on the node as picked.
func (b Balance) Rank(n *Node, pod *Pod, picks []Choice) Rank {
	s := b.costsOf(n)
	defer s.release()
	return s.Rank(n, pod, picks)
}

// strandingChange returns the change of W (the SM-time of a slice that future pods are expected to leave unused), summed over the changed
// slices.
func (d *Demand) strandingChange(changed []sliceChange) ppmMilli {
	var sum ppmMilli
	for i := range changed {
		sum += d.stranded[changed[i].after.largest] - d.stranded[changed[i].before.largest]
	}
	return sum
}

func hasPickOn(picks []Choice, slice int) bool {
	for _, p := range picks {
		if p.Slice == slice {
			return true
		}
	}
	return false
}

// scarcityCost returns the SM-time that the pod takes of each slice times the scarcity of the slice's GPU model, summed over the slices.
func (v *nodeView) scarcityCost(pod *Pod, picks []Choice) ppmMilli {
	var sum ppmMilli
	for _, p := range picks {
		gpu := milliGPUOf(pod.Request.Containers[p.Container].Share.RequestArea())
		sum += ppmMilli(gpu) * ppmMilli(v.slices[p.Slice].scarcity)
	}
	return sum
}

// maxRemainingCPU bounds the CPU term in the tie-break of policy D, so that the SM-time of 32 slices fits beside it. Where pods request
// little CPU, the CPU of one node converts to many more GPUs than the node has.
const maxRemainingCPU = tieMax - 32*int64(WholeGPU)

// remainder returns the SM-time and the CPU that stay free on a node as one number, the CPU converted to milli-GPU. The less stays free,
// the better the fit.
func (b Balance) remainder(time MilliGPU, cpu MilliCPU) int64 {
	left := int64(time)
	if ratio := int64(b.Demand.cpuRatio); ratio > 0 {
		left += min(maxRemainingCPU, int64(max(cpu, 0))*int64(WholeGPU)/ratio)
	}
	return left
}

// nodeCosts holds the costs of policy D for one node before a pod is placed, so that many candidate placements can be ranked quickly. It
// is immutable once computed.
type nodeCosts struct {
	Balance
	before nodeView
	cost   ppmMilli // of the node as it is
	slices [16]freeSlice
}

// nodeCostsPool recycles values of type nodeCosts.
var nodeCostsPool = sync.Pool{New: func() any { return new(nodeCosts) }}

// costsOf returns the costs of the node from the pool. The caller must call release when it no longer uses them.
func (b Balance) costsOf(n *Node) *nodeCosts {
	s := nodeCostsPool.Get().(*nodeCosts)
	s.compute(b, n)
	return s
}

// release returns the costs to the pool.
func (s *nodeCosts) release() {
	s.Balance = Balance{} // so that the pool keeps no demand reachable
	nodeCostsPool.Put(s)
}

// compute fills in the costs of the node.
func (s *nodeCosts) compute(b Balance, n *Node) {
	s.Balance = b
	b.Demand.fillView(n, &s.before, s.slices[:0])
	s.cost = s.costAfter(nil, 0, 0)
}

// Rank returns the rank of a placement on n, the node whose costs these are.
func (s *nodeCosts) Rank(n *Node, pod *Pod, picks []Choice) Rank {
	var space [1]sliceChange // enough for most pods
	changed := s.Demand.sliceChanges(&s.before, n, pod, picks, space[:0])
	cost := s.costAfter(changed, pod.CPU, pod.RAM) - s.cost
	if s.Terms.Stranding {
		cost += s.Demand.strandingChange(changed) / 2
	}
	if s.Terms.Scarcity {
		cost += s.before.scarcityCost(pod, picks)
	}
	return rankOf(int64(cost), s.remainder(s.before.freeTimeAfter(changed), s.before.cpu-pod.CPU))
}

// costAfter returns F + S (fragmentation and shortage of CPU) of the node once its slices have changed as given and the given CPU and
// memory are taken.
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
