package simulate

import (
	"context"
	"errors"

	"github.com/spf13/pflag"

	"github.com/gshare-dev/gshare/cmd/gshare-lab/internal/report"
	"github.com/gshare-dev/gshare/cmd/internal/chart"
	"github.com/gshare-dev/gshare/lab/cluster"
)

// rebalanceSimulation holds the flags of gshare-lab simulate rebalance, which moves the pods that remain on a cluster after others have gone.
type rebalanceSimulation struct {
	clusterSimulation
	turnover, left float64
	known          map[uint64]cluster.ChurnResult // by seed
}

// The states of a cluster that the simulation compares.
const (
	churned    = "churned"
	rebalanced = "rebalanced"
	followed   = "followed"
	fresh      = "fresh"
	scheduled  = "scheduled"
)

const rebalanceLong = `Count the GPUs in use on a cluster where pods come and go, before and after moving some of the pods. The pods of the trace arrive in random
order until they request --load times the GPUs of the cluster. Then each pod is replaced --turnover times on average. Then pods end until
--left of the load remains. gshare's policy places each pod.

  churned     the cluster after that
  rebalanced  after the moves that gshare whatif --rebalance would show, each to the planned place
  followed    after the same evictions, when gshare's scheduler chooses the places by itself
  fresh       the same pods packed again, the largest first, each on the fullest GPU with room
  scheduled   the same pods placed again by gshare's scheduler, in random order

Figures of each run:
  gpus_in_use           GPUs that hold a pod
  percent_of_fresh      gpus_in_use, in percent of the GPUs in use in fresh
  evictions             pods moved
  evictions_per_tenth   pods moved for each tenth of a GPU that is freed
  impossible            rebalanced: moves that had no room when their turn came, according to separate accounting
  lost                  followed: evicted pods that the scheduler could not place again`

func simulateRebalance() *simulation {
	r := &rebalanceSimulation{known: map[uint64]cluster.ChurnResult{}}
	return &simulation{
		name: "rebalance", short: "Free GPUs of a cluster by moving pods", long: rebalanceLong,
		example:  "  gshare-lab simulate rebalance --left 0.5 --policy all --runs 10",
		policies: []string{churned, rebalanced, followed, fresh, scheduled},
		flags:    r.flags, prepare: r.prepare, run: r.run, chart: r.chart,
	}
}

func (r *rebalanceSimulation) flags(f *pflag.FlagSet) {
	r.clusterSimulation.flags(f)
	f.Lookup("load").DefValue = "0.9"
	r.load = 0.9
	f.Float64Var(&r.turnover, "turnover", 2, "average number of times that each pod is replaced by another")
	f.Float64Var(&r.left, "left", 0.6, "part of the load that remains at the end")
}

func (r *rebalanceSimulation) prepare() error {
	switch {
	case !(r.load > 0 && r.load <= 1):
		return errors.New("--load: must be above 0 and at most 1")
	case !(r.turnover >= 0 && r.turnover <= maxReplicate):
		return errors.New("--turnover: must be from 0 to 100")
	case !(r.left > 0 && r.left <= 1):
		return errors.New("--left: must be above 0 and at most 1")
	}
	return r.clusterSimulation.prepare()
}

func (r *rebalanceSimulation) run(ctx context.Context, state string, seed uint64) ([]report.Figure, error) {
	result, ok := r.known[seed]
	if !ok {
		var err error
		if result, err = cluster.Churn(ctx, cluster.ChurnConfig{
			Nodes: r.nodes, Pods: r.pods, Order: r.order, Load: r.load, Turnover: r.turnover, Left: r.left, Seed: seed,
		}); err != nil {
			return nil, err
		}
		r.known[seed] = result
	}
	gpus := map[string]int{
		churned: result.Churned, rebalanced: result.Rebalanced, followed: result.Followed, fresh: result.Fresh, scheduled: result.Scheduled,
	}[state]
	figures := []report.Figure{
		{Name: "gpus_in_use", Value: float64(gpus)},
		{Name: "percent_of_fresh", Value: 100 * float64(gpus) / float64(max(1, result.Fresh)), Digits: 2},
	}
	if state != rebalanced && state != followed {
		return figures, nil
	}
	perTenth := float64(result.Moves) / float64(10*max(1, result.Churned-gpus))
	figures = append(figures,
		report.Figure{Name: "evictions", Value: float64(result.Moves)},
		report.Figure{Name: "evictions_per_tenth", Value: perTenth, Digits: 3})
	if state == rebalanced {
		return append(figures, report.Figure{Name: "impossible", Value: float64(result.Impossible)}), nil
	}
	return append(figures, report.Figure{Name: "lost", Value: float64(result.Lost)}), nil
}

func (r *rebalanceSimulation) chart(summaries []report.Summary) *chart.Chart {
	picture := &chart.Chart{Title: "GPUs in use, and after moving pods", Y: "GPUs"}
	for _, s := range summaries {
		picture.Bars = append(picture.Bars, chart.Bar{Name: s.Policy, Value: s.Value("gpus_in_use")})
	}
	return picture
}
