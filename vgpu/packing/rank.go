package packing

// Rank orders choices: the lower, the better. It joins a cost and a tie-break, so that it fits a kube-scheduler score.
type Rank int64

const (
	tieBits = 20
	tieMax  = 1<<tieBits - 1
)

func rankOf(cost, tie int64) Rank { return Rank(cost<<tieBits | min(max(tie, 0), tieMax)) }

// Ranker values the state that picks would leave on a node. Only fitting picks are ranked.
type Ranker interface {
	Rank(n *Node, pod *Pod, picks []Choice) Rank
}

// Choice is one vGPU of a pod on one slice of a node.
type Choice struct {
	Pick
	Container int
}
