package simulate

import (
	"context"

	"github.com/gshare-dev/gshare/cmd/gshare-lab/internal/report"
	"github.com/gshare-dev/gshare/cmd/internal/chart"
	"github.com/gshare-dev/gshare/lab/elastic"
)

// elasticCVs holds the coefficients of variation, of the gaps between requests, on the X axis of the chart, as in Dilu's figure 10 (N-D5).
var elasticCVs = []float64{1, 2, 3, 4, 5, 6}

// addSweep runs a policy at each coefficient of variation in elasticCVs and adds its p95 ratios to the chart.
func (e *elasticSimulation) addSweep(ctx context.Context, policy string, seed uint64) error {
	line := e.sweep[policy]
	if line == nil {
		line = &chart.Line{Name: policy, Points: make([]chart.Point, len(elasticCVs))}
		e.sweep[policy] = line
	}
	for i, cv := range elasticCVs {
		base, err := e.baseline(ctx, seed, cv)
		if err != nil {
			return err
		}
		out, err := e.serve(ctx, policy, seed, cv)
		if err != nil {
			return err
		}
		line.Points[i].X = cv
		line.Points[i].Y += elastic.Compare(out, base).P95
	}
	return nil
}

func (e *elasticSimulation) chart(summaries []report.Summary) *chart.Chart {
	c := &chart.Chart{Title: "Two functions on one GPU, " + e.kind, X: "coefficient of variation of the gaps between requests", Y: "p95 of inference, over that of exclusive GPUs"}
	for _, s := range summaries {
		line := *e.sweep[s.Policy]
		for i := range line.Points {
			line.Points[i].Y /= float64(len(s.Runs))
		}
		c.Lines = append(c.Lines, line)
	}
	return c
}
