package simulate

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/gshare-dev/gshare/cmd/gshare-lab/internal/report"
	"github.com/gshare-dev/gshare/cmd/internal/chart"
	"github.com/gshare-dev/gshare/lab/shapes"
	"github.com/gshare-dev/gshare/vgpu/share"
)

func (s *shapesSimulation) config(gpus int) shapes.Config {
	return shapes.Config{
		GPUs:    gpus,
		Memory:  share.Bytes(s.memoryGiB) << 30,
		Reserve: share.PerMille(math.Round(s.reserve * float64(share.Whole))),
	}
}

func (s *shapesSimulation) run(ctx context.Context, policy string, seed uint64) ([]report.Figure, error) {
	pods := shapes.Draw(s.family, s.pods, seed)
	if s.churn {
		return s.runChurn(ctx, policy, pods, seed)
	}
	return s.runFill(ctx, policy, pods)
}

func (s *shapesSimulation) runFill(ctx context.Context, policy string, pods []shapes.Pod) ([]report.Figure, error) {
	c := s.config(len(pods))
	fleet, err := shapes.New(policy, c)
	if err != nil {
		return nil, err
	}
	begin := time.Now()
	gpus, err := shapes.Fill(ctx, fleet, pods)
	if err != nil {
		return nil, err
	}
	took := time.Since(begin)
	bound := shapes.LowerBound(pods, c.Memory, c.Reserve)
	return []report.Figure{
		{Name: "gpus", Value: float64(gpus), Digits: 1},
		{Name: "lower_bound", Value: bound, Digits: 1},
		{Name: "ratio", Value: float64(gpus) / bound, Digits: 3},
		{Name: "density_percent", Value: 100 * shapes.Area(pods) / float64(gpus), Digits: 1},
		perPod(took, pods),
	}, nil
}

// The number of GPUs and the load of --churn.
const (
	churnGPUs = 30
	churnLoad = 1.1
)

func (s *shapesSimulation) runChurn(ctx context.Context, policy string, pods []shapes.Pod, seed uint64) ([]report.Figure, error) {
	fleet, err := shapes.New(policy, s.config(churnGPUs))
	if err != nil {
		return nil, err
	}
	begin := time.Now()
	stay, err := shapes.Churn(ctx, fleet, pods, churnLoad, seed)
	if err != nil {
		return nil, err
	}
	took := time.Since(begin)
	return []report.Figure{
		{Name: "gpus", Value: churnGPUs},
		{Name: "density_percent", Value: 100 * stay.Density, Digits: 1},
		{Name: "refused_percent", Value: 100 * stay.Refused, Digits: 1},
		perPod(took, pods),
	}, nil
}

func perPod(took time.Duration, pods []shapes.Pod) report.Figure {
	return report.Figure{Name: "ns_per_pod", Value: float64(took.Nanoseconds()) / float64(len(pods))}
}

func (s *shapesSimulation) chart(summaries []report.Summary) *chart.Chart {
	figure, y := "ratio", "GPUs over the LP bound"
	if s.churn {
		figure, y = "density_percent", "SM-time in use, %"
	}
	c := &chart.Chart{Title: fmt.Sprintf("%s, %d pods, reserve %g", s.familyName, s.pods, s.reserve), Y: y}
	for _, summary := range summaries {
		for i, mean := range summary.Mean() {
			if mean.Name == figure {
				c.Bars = append(c.Bars, chart.Bar{Name: summary.Policy, Value: mean.Value, Dev: summary.StdDev()[i].Value})
			}
		}
	}
	return c
}
