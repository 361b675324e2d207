package packing

import "github.com/gshare-dev/gshare/vgpu/share"

// Complementary is Dilu's choice between GPUs (section 3.3, Algorithm 1 as corrected). GPUs that host a similar load come
// first, then other active ones, then fresh ones (DI-32, DI-38); among GPUs of one kind the one on which least is left,
//
//	Alpha x (1 - requests/SMs) + Beta x (1 - memory/M), both with the share placed (DI-37; D6: the smallest wins).
//
// A pod of several vGPUs looks at them one after another, each with those before it in place (DI-39). It prefers the node
// with the fewest fresh GPUs, since the number of GPUs is what Dilu minimises (DI-30), then with the fewest strangers.
type Complementary struct {
	Alpha, Beta share.PerMille // weights; they add up to share.Whole
}

// DiluWeights are those of Dilu's code; the paper names none (D7).
var DiluWeights = Complementary{Alpha: 600, Beta: 400}

// A pod's left-overs never add up to one stranger, nor its strangers to one fresh GPU.
const (
	costOfStranger = (share.MaxVGPUs + 1) * int64(one)
	costOfFresh    = (share.MaxVGPUs + 1) * costOfStranger
)

// Rank implements Ranker.
func (c Complementary) Rank(n *Node, pod *Pod, picks []Choice) Rank {
	use := pod.use()
	var cost int64
	for i, p := range picks {
		cost += costOfTier(&n.Loads[p.Slice], use, seenBefore(picks[:i], p.Slice)) + int64(c.leftOver(n, pod, picks[:i+1]))
	}
	return rankOf(cost, 0)
}

// costOfTier is for a GPU without affinity, active or fresh. One that the pod has chosen for another container already is
// its own company.
func costOfTier(l *Load, use Use, chosen bool) int64 {
	switch {
	case chosen, l.hosts(use):
		return 0
	case l.Empty():
		return costOfFresh
	}
	return costOfStranger
}

// leftOver is the weighted part that stays free on the slice of the last pick once all picks have their shares.
func (c Complementary) leftOver(n *Node, pod *Pod, picks []Choice) ppm {
	at := picks[len(picks)-1].Slice
	area, memory := n.Loads[at].Requested(), n.Loads[at].Memory()
	for _, p := range picks {
		if p.Slice == at {
			sh := pod.Request.Containers[p.Container].Share
			area += sh.RequestArea()
			memory += sh.Memory
		}
	}
	sm := int64(c.Alpha) * int64(share.WholeArea-area) // an area is a millionth of a slice
	mem := int64(c.Beta) * int64(partOf(n.Slices[at].Memory-memory, n.Slices[at].Memory))
	return ppm((sm + mem) / int64(share.Whole))
}

// partOf counts in MiB, in which the largest memories are far from overflow.
func partOf(free, whole share.Bytes) ppm {
	return ppm(int64(free/share.MiB) * int64(one) / max(1, int64(whole/share.MiB)))
}
