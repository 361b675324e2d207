package packing

// Rank orders choices: the lower, the better. It joins a cost and a tie-break, so that it fits a kube-scheduler score.
type Rank int64

const (
	tieBits = 20
	tieMax  = 1<<tieBits - 1
	costMax = 1<<(63-tieBits) - 2 // a little below the top, for a score worse than any rank
)

// rankOf never reaches the top: a cost or a tie too large for its bits counts as the largest that has room.
func rankOf(cost, tie int64) Rank {
	return Rank(clamp(cost, -costMax, costMax)<<tieBits | clamp(tie, 0, tieMax))
}

func clamp(v, low, high int64) int64 { return min(max(v, low), high) }

// Ranker values the state that picks would leave on a node. Only fitting picks are ranked.
type Ranker interface {
	Rank(n *Node, pod *Pod, picks []Choice) Rank
}

// Choice is one vGPU of a pod on one slice of a node.
type Choice struct {
	Pick
	Container int
}
