package packing

// Rank orders choices: lower is better. It holds a cost and a tie-break in one number that fits a kube-scheduler score.
type Rank int64

const (
	tieBits = 20
	tieMax  = 1<<tieBits - 1
	costMax = 1<<(63-tieBits) - 2 // a little below the top, for a score worse than any rank
)

// rankOf returns a rank; a cost or a tie-break that is too large for its bits is cut to the largest.
func rankOf(cost, tie int64) Rank {
	return Rank(clamp(cost, -costMax, costMax)<<tieBits | clamp(tie, 0, tieMax))
}

// clamp returns v, or the nearer of the bounds if v is outside them.
func clamp(v, low, high int64) int64 { return min(max(v, low), high) }

// Ranker ranks the state that admitted picks would leave on a node.
type Ranker interface {
	Rank(n *Node, pod *Pod, picks []Choice) Rank
}

// Choice is the pick for one vGPU of a container.
type Choice struct {
	Pick
	Container int
}
