package packing

// Rank compares possible placements of a pod: the lower, the better. It holds a cost and a tie-break in one number that fits a
// kube-scheduler score.
type Rank int64

const (
	tieBits = 20
	tieMax  = 1<<tieBits - 1
	costMax = 1<<(63-tieBits) - 2 // a little below the top, so that a score can be worse than every rank
)

// rankOf combines a cost and a tie-break into a Rank. Values too large for their bits are clamped.
func rankOf(cost, tie int64) Rank {
	return Rank(clamp(cost, -costMax, costMax)<<tieBits | clamp(tie, 0, tieMax))
}

func clamp(v, low, high int64) int64 { return min(max(v, low), high) }

// Ranker computes the rank of a node as it would be after placing a pod on the given slices.
type Ranker interface {
	Rank(n *Node, pod *Pod, picks []Choice) Rank
}

// Choice is the slice chosen for one vGPU of a container, given by the container's index in the pod's request.
type Choice struct {
	Pick
	Container int
}
