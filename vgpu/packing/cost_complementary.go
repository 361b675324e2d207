package packing

import (
	"github.com/gshare-dev/gshare/vgpu/share"
)

// Complementary is the Ranker of Dilu (section 3.3, Algorithm 1 as corrected). It prefers GPUs that host pods of the same workload, then
// other used GPUs, then unused ones. Among equally preferred GPUs it takes the one that is left with the least free,
//
//	Alpha x (1 - requests/SMs) + Beta x (1 - memory/M),
//
// where both terms include the share being placed (D6: the smallest is best).
//
// The vGPUs of a pod are ranked one after another, each with the ones before it already in place. Dilu minimises the number of
// GPUs, so the node on which the pod takes the fewest unused GPUs is best; then the one on which it takes the fewest GPUs without
// affinity.
type Complementary struct {
	Alpha, Beta share.PerMille // weights; they add up to share.Whole
}

// DiluWeights are the weights of SMs and memory in Dilu's code; the paper has none (D7).
var DiluWeights = Complementary{Alpha: 600, Beta: 400}

// The unused parts of all GPUs of a pod cost less than one GPU without affinity, and all its GPUs without affinity less than one unused
// GPU.
const (
	costWithoutAffinity = (share.MaxVGPUs + 1) * int64(one)
	costOfUnused        = (share.MaxVGPUs + 1) * costWithoutAffinity
)

// Rank returns the sum of the affinity costs and of the weighted unused parts over the picked GPUs.
func (c Complementary) Rank(n *Node, pod *Pod, picks []Choice) Rank {
	use := pod.use()
	var cost int64
	for i, p := range picks {
		cost += affinityCost(&n.Loads[p.Slice], use, hasPickOn(picks[:i], p.Slice)) + int64(c.unusedAfter(n, pod, picks[:i+1]))
	}
	return rankOf(cost, 0)
}

// affinityCost returns the cost of taking a GPU that hosts no pod with workload affinity: more for an unused GPU than for a used one. A
// GPU that was already chosen for the same pod costs nothing.
func affinityCost(l *Load, use Use, chosen bool) int64 {
	switch {
	case chosen, l.hostsAffine(use):
		return 0
	case l.Empty():
		return costOfUnused
	}
	return costWithoutAffinity
}

// unusedAfter returns the weighted part of SM-time and memory that stays free on the last picked slice once all picks are placed.
func (c Complementary) unusedAfter(n *Node, pod *Pod, picks []Choice) ppm {
	at := picks[len(picks)-1].Slice
	area, memory := n.Loads[at].Requested(), n.Loads[at].Memory()+memoryOn(n, pod, picks, at)
	for _, p := range picks {
		if p.Slice == at {
			area += pod.Request.Containers[p.Container].Share.RequestArea()
		}
	}
	sm := int64(c.Alpha) * int64(share.WholeArea-area) // an area is a millionth of a slice
	mem := int64(c.Beta) * int64(fraction(n.Slices[at].Memory-memory, n.Slices[at].Memory))
	return ppm((sm + mem) / int64(share.Whole))
}

// fraction returns free/whole in millionths. It divides in MiB, so that the largest memories do not overflow.
func fraction(free, whole share.Bytes) ppm {
	return ppm(int64(free/share.MiB) * int64(one) / max(1, int64(whole/share.MiB)))
}

// Use is what is known about the load of an instance on its GPU. The zero value means that nothing is known.
type Use struct {
	Workload string // the user's affinity key; empty if the user gave none
}

func (p *Pod) use() Use { return Use{Workload: p.Request.Workload} }

// hasAffinity reports whether two instances have Dilu's workload affinity (D10): equal workload names given by the users.
func (u Use) hasAffinity(o Use) bool { return u.Workload != "" && u.Workload == o.Workload }

// hostsAffine reports whether the slice hosts an instance with workload affinity to the given one.
func (l *Load) hostsAffine(use Use) bool {
	for i := range l.residents {
		if l.residents[i].Use.hasAffinity(use) {
			return true
		}
	}
	return false
}
