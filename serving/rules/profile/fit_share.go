package profile

import (
	"fmt"
	"slices"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// FitShare fits the latencies of a model on shares to measurements on one GPU model, for batches of up to the given size. Nothing is extrapolated: there
// is a curve for each number of SMs that was measured with a batch of at least this size, alone on the SMs and all the time. If only one batch size was
// measured, smaller batches are assumed to take as long. The time slices of a quota below the whole repeat every window. If the measurements include no
// such quota, the p99 latency is assumed to exceed the worst case by the same factor by which it exceeds the mean without time slicing. A replica needs
// the given memory, whatever its batch size.
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
	if tail, e, err := m.FitTail(sliced); err == nil { // an error means too few points
		m.Tail, worst = tail, max(worst, e)
	}
	return m, worst, m.Validate()
}

// fitCurve returns the mean latency over the batch size, and a zero line if no batch of at least the given size was measured.
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
