package sharing

import (
	"cmp"
	"context"
	"math"
	"slices"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
)

// PreScore skips scoring for pods with soft constraints, because the scores of the other plugins are to choose their node.
func (p *Plugin) PreScore(_ context.Context, state fwk.CycleState, _ *v1.Pod, _ []fwk.NodeInfo) *fwk.Status {
	c, status := p.cycleOf(state)
	if status == nil && !c.ranksNodes {
		return fwk.NewStatus(fwk.Skip)
	}
	return status
}

// Score returns the negated rank of the node for the pod, because a better node must have a higher score. NormalizeScore maps it to the
// framework's range.
func (p *Plugin) Score(_ context.Context, state fwk.CycleState, _ *v1.Pod, info fwk.NodeInfo) (int64, *fwk.Status) {
	c, status := p.cycleOf(state)
	if status != nil {
		return 0, status
	}
	rank, refused := p.evaluateNode(c, info)
	if refused != nil {
		return math.MinInt64, nil
	}
	return -int64(rank), nil
}

// ScoreExtensions implements fwk.ScorePlugin; the plugin normalizes its own scores.
func (p *Plugin) ScoreExtensions() fwk.ScoreExtensions { return p }

// NormalizeScore sets the score of the best node to 100, of the next to 99, and so on. With integer scores, random choices between ties
// would cost several points of allocation; distinct scores, with a weight above that of all other plugins together, make the choice exact
// and repeatable. NormalizeScore depends on the scores alone, so that the framework may call it with scores of an earlier cycle.
func (p *Plugin) NormalizeScore(_ context.Context, _ fwk.CycleState, _ *v1.Pod, scores fwk.NodeScoreList) *fwk.Status {
	order := make([]int, len(scores))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(scores[b].Score, scores[a].Score), cmp.Compare(scores[a].Name, scores[b].Name))
	})
	for place, i := range order {
		scores[i].Score = max(fwk.MinScore, fwk.MaxScore-int64(place))
	}
	return nil
}
