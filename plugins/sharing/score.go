package sharing

import (
	"cmp"
	"context"
	"math"
	"slices"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
)

// PreScore leaves the choice to the other plugins when the pod states preferences of its own.
func (p *Plugin) PreScore(_ context.Context, state fwk.CycleState, _ *v1.Pod, _ []fwk.NodeInfo) *fwk.Status {
	c, status := p.cycleOf(state)
	if status == nil && !c.ranks {
		return fwk.NewStatus(fwk.Skip)
	}
	return status
}

// Score gives the rank, negated, since here more is better. It is exact; NormalizeScore brings it into the framework's range.
func (p *Plugin) Score(_ context.Context, state fwk.CycleState, _ *v1.Pod, info fwk.NodeInfo) (int64, *fwk.Status) {
	c, status := p.cycleOf(state)
	if status != nil {
		return 0, status
	}
	rank, refused := p.ask(c, info)
	if refused != nil {
		return math.MinInt64, nil
	}
	return -int64(rank), nil
}

// ScoreExtensions implements fwk.ScorePlugin.
func (p *Plugin) ScoreExtensions() fwk.ScoreExtensions { return p }

// NormalizeScore turns ranks into places: 100 for the best node, 99 for the next, and so on. Integer scores with random ties
// would cost several points of allocation; distinct places, with a weight above all other plugins together, make the
// choice exact and repeatable. It works on the scores alone, so that batches may call it with scores of an earlier cycle.
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
