package profile

import (
	"fmt"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// Accuracy holds the errors of the curves that were fitted to the mean and to the p99 latency.
type Accuracy struct{ Mean, P99 MAPE }

// FitCPU fits latency curves to measurements on vCPUs, for each batch size from 1. It returns the error of the worst curve.
func FitCPU(points []Point) (*CPU, Accuracy, error) {
	m, worst := &CPU{}, Accuracy{}
	for batch := 1; ; batch++ {
		c, mean, p99, err := cpuSeries(points, batch)
		if err != nil || len(c) == 0 && batch > 1 {
			return m, worst, err
		}
		curve, e, err := FitExponential(c, mean)
		if err != nil {
			return nil, worst, WithinField(fmt.Sprintf("batch %d", batch), err)
		}
		m.Mean, worst.Mean = append(m.Mean, curve), max(worst.Mean, e)
		if curve, e, err = FitExponential(c, p99); err != nil {
			return nil, worst, WithinField(fmt.Sprintf("batch %d, p99", batch), err)
		}
		m.P99, worst.P99 = append(m.P99, curve), max(worst.P99, e)
	}
}

func cpuSeries(points []Point, batch int) (c []MilliCPU, mean, p99 []float64, err error) {
	for i, p := range points {
		if err := p.Validate(); err != nil {
			return nil, nil, nil, WithinField(fmt.Sprintf("points[%d]", i), err)
		}
		if p.Resource.CPU == 0 {
			return nil, nil, nil, share.Invalid(fmt.Sprintf("points[%d].resource", i), "is not in vCPUs")
		}
		if p.Batch == batch {
			c, mean, p99 = append(c, p.Resource.CPU), append(mean, p.Mean.Seconds()), append(p99, p.P99.Seconds())
		}
	}
	return c, mean, p99, nil
}

// FitBatches fits the mean latency over the batch size to measurements on one GPU resource (PAMBA, eq. 4.3).
func FitBatches(points []Point) (Linear, MAPE, error) {
	var batch, mean []float64
	for i, p := range points {
		if err := p.Validate(); err != nil {
			return Linear{}, 0, WithinField(fmt.Sprintf("points[%d]", i), err)
		}
		if p.Resource != points[0].Resource || p.Resource.CPU != 0 {
			return Linear{}, 0, share.Invalid(fmt.Sprintf("points[%d].resource", i), "is another than the first, or no GPU")
		}
		batch, mean = append(batch, float64(p.Batch)), append(mean, p.Mean.Seconds())
	}
	return FitLinear(batch, mean)
}

// FitTail fits the p99 latency over the worst case of the time-slicing model to measurements on shares (PAMBA, eq. 4.5). Where PAMBA
// sells m of the M GB of a card's memory, the share has all SMs and the quota m/M.
func (m *Share) FitTail(points []Point) (Linear, MAPE, error) {
	untuned := *m
	untuned.Tail = Linear{Slope: 1}
	var worst, p99 []float64
	for i, p := range points {
		curve := m.curve(p.Resource.SM)
		if err := p.Validate(); err != nil || curve < 0 {
			return Linear{}, 0, share.Invalid(fmt.Sprintf("points[%d]", i), "%d per mille of SMs: no curve (%v)", p.Resource.SM, err)
		}
		if p.Resource.Quota < share.Whole {
			worst = append(worst, float64(untuned.Latency(p.Batch, curve, p.Resource.Quota).P99))
			p99 = append(p99, p.P99.Seconds())
		}
	}
	return FitLinear(worst, p99)
}

func (m *Share) curve(sm share.PerMille) int {
	for i, c := range m.Curves {
		if c.SM == sm {
			return i
		}
	}
	return -1
}

// FitTransfer fits the time of one transfer between consecutive stages over the batch size. Each value of beyond is the mean end-to-end
// latency less the mean latencies of the stages.
func FitTransfer(batches []int, beyond []Seconds, stages int) (Linear, MAPE, error) {
	if stages < 2 {
		return Linear{}, 0, share.Invalid("stages", "%d have no transfer between them", stages)
	}
	x, y := make([]float64, len(batches)), make([]float64, len(beyond))
	for i := range batches {
		x[i] = float64(batches[i])
	}
	for i := range beyond {
		y[i] = float64(beyond[i]) / float64(stages-1)
	}
	return FitLinear(x, y)
}
