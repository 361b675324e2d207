package profile

import (
	"fmt"
	"slices"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// FitShare fits the latencies of a model on shares to measurements on one model of GPU, for batches of up to a size. Nothing is extrapolated: there is a
// curve for each number of SMs that was measured with such a batch, alone and all the time. From one size of batch alone, smaller ones are taken to last
// as long. The time slices of a quota below the whole repeat each window. Where the measurements have none of them, their p99 latency is over the worst
// case what it is over the mean alone. A replica has the memory, whatever its batch.
//
// The error is a *share.FieldError; the MAPE is that of the worst curve.
func FitShare(points []Point, batch int, window Seconds, memory share.Bytes) (*Share, MAPE, error) {
	m := &Share{Tail: Linear{Slope: 1}, Window: window, MaxBatch: batch, Memory: Linear{Intercept: float64((memory + share.MiB - 1) / share.MiB)}}
	bySM, sliced := map[share.PerMille][]Point{}, []Point(nil)
	for i, p := range points {
		if err := p.Validate(); err != nil {
			return nil, 0, WithinField(fmt.Sprintf("points[%d]", i), err)
		}
		switch {
		case p.Resource.SM == 0 || p.Resource.Device != points[0].Resource.Device:
			return nil, 0, share.Invalid(fmt.Sprintf("points[%d].resource", i), "is no share of the GPU of the first")
		case p.Resource.Quota < share.Whole:
			sliced = append(sliced, p)
		default:
			bySM[p.Resource.SM] = append(bySM[p.Resource.SM], p)
			if p.P99 > 0 {
				m.Tail.Slope = max(m.Tail.Slope, p.P99.Seconds()/p.Mean.Seconds())
			}
		}
	}
	worst := MAPE(0)
	for sm, of := range bySM {
		curve, e, err := fitCurve(of, batch)
		if err != nil {
			return nil, 0, WithinField(fmt.Sprintf("SMs %d", sm), err)
		}
		if curve != (Linear{}) {
			m.Curves, worst = append(m.Curves, ShareCurve{SM: sm, Exclusive: curve}), max(worst, e)
		}
	}
	slices.SortFunc(m.Curves, func(a, b ShareCurve) int { return int(a.SM - b.SM) })
	sliced = slices.DeleteFunc(sliced, func(p Point) bool { return p.P99 == 0 || m.curve(p.Resource.SM) < 0 })
	if tail, e, err := m.FitTail(sliced); err == nil { // an error: too few
		m.Tail, worst = tail, max(worst, e)
	}
	return m, worst, m.Validate()
}

// fitCurve returns the time of a batch over its size, and an empty line if there is no measurement of one of the largest size or more.
func fitCurve(points []Point, batch int) (Linear, MAPE, error) {
	sizes := map[int]bool{}
	largest := points[0]
	for _, p := range points {
		sizes[p.Batch] = true
		if p.Batch > largest.Batch || p.Batch == largest.Batch && p.Mean > largest.Mean {
			largest = p
		}
	}
	switch {
	case largest.Batch < batch:
		return Linear{}, 0, nil
	case len(sizes) == 1:
		return Linear{Intercept: largest.Mean.Seconds()}, 0, nil
	}
	return FitBatches(points)
}
