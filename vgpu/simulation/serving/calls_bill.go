package serving

import (
	"math/rand/v2"
	"slices"

	"github.com/gshare-dev/gshare/vgpu/planning"
	"github.com/gshare-dev/gshare/vgpu/profile"
)

// leastBill takes, of the plans of all planners, the one whose bill is expected to be the least. Planners bill the mean execution;
// what is billed in the end is each one rounded up, which costs more where the mean lies just below a unit.
func leastBill(in planning.Input) (planning.Plan, error) {
	best, err := planning.Best(in)
	if err != nil || len(best.Infeasible) > 0 {
		return best, err
	}
	least := expectedBill(&in, &best)
	for _, plan := range []planner{planning.Phases, planning.HarmonyBatch} {
		other, err := plan(in)
		if err != nil || len(other.Infeasible) > 0 {
			continue // it has fewer modes to choose from
		}
		if bill := expectedBill(&in, &other); bill < least {
			best, least = other, bill
		}
	}
	return best, nil
}

// draws is from how many executions a bill is estimated.
const draws = 1000

// expectedBill is in nano-units a second, if all batches are full.
func expectedBill(in *planning.Input, plan *planning.Plan) float64 {
	sum := 0.0
	for i := range plan.Groups {
		g := &group{world: &calls{prices: in.Prices}, plan: plan.Groups[i], random: rand.New(rand.NewPCG(1, 1))}
		g.model = modelOf(in.Models, &g.plan)
		batch := g.plan.Config.Batch
		for range draws {
			sum += g.price(g.takes(batch)) * g.plan.Rate() / float64(batch) / draws
		}
	}
	return sum
}

func modelOf(models []profile.Model, g *planning.Group) *profile.Model {
	return &models[slices.IndexFunc(models, func(m profile.Model) bool { return m.Name == g.Applications[0].Model })]
}
