package unseen

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/gshare-dev/gshare/serving/rules/planning"
	"github.com/gshare-dev/gshare/serving/rules/profile"
)

// Planned is how good a plan based on predictions turns out to be by the measurements.
type Planned struct {
	Above    float64 // fraction by which it costs more than the best plan by the measurements, for the groups that meet their objectives
	Broken   int     // groups that do not meet their objectives
	Groups   int
	Separate float64 // fraction by which the best plan is cheaper than serving each application by itself
}

// Plan plans eight random applications on shares with the predicted model, and assesses the plan with the measured one.
func Plan(measured, predicted profile.Model, seed uint64) (out Planned, err error) {
	in := planning.Input{
		Prices: planning.PriceList{Currency: "USD", Slice: 500_000, SliceMemory: 1_500}, Platform: planning.DefaultPlatform(), Modes: []planning.Mode{planning.Share},
	}
	random := rand.New(rand.NewPCG(seed, 8))
	between := func(low, high float64) float64 { return low * math.Exp(random.Float64()*math.Log(high/low)) }
	// Objectives are multiples of the time that a batch of eight takes on the smallest share.
	one := float64(measured.Share.Curves[0].Exclusive.Seconds(8))
	for i := range 8 {
		in.Applications = append(in.Applications, planning.Application{
			Name: fmt.Sprint("app", i+1), Model: measured.Name, SLO: profile.Seconds(one * between(4, 40)), Rate: between(0.5, 5) / one,
		})
	}
	by := func(m profile.Model) planning.Input { in.Models = []profile.Model{m}; return in }
	plan, err := planning.Best(by(predicted))
	if err != nil {
		return out, err
	}
	out.Groups = len(plan.Groups)
	cost, best := planning.Cost(0), planning.Cost(0)
	for _, g := range plan.Groups {
		own := by(measured)
		own.Applications = g.Applications
		kept, ok, err := planning.Keep(own, []planning.Group{g})
		if err != nil {
			return out, err
		}
		if !ok || kept.Groups[0].Config.Instances > g.Config.Instances {
			out.Broken++ // with the planned number of instances
			continue
		}
		cheapest, err := planning.Best(own)
		if err != nil {
			return out, err
		}
		cost, best = cost+g.Cost, best+cheapest.Cost
	}
	if best > 0 {
		out.Above = float64(cost/best) - 1
	}
	together, err := planning.Best(by(measured))
	if err != nil {
		return out, err
	}
	apart, err := planning.Separate(by(measured))
	if err != nil {
		return out, err
	}
	out.Separate = 1 - float64(together.Cost/apart.Cost)
	return out, nil
}
