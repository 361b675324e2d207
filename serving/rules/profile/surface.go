package profile

import (
	"cmp"
	"fmt"
	"slices"
	"sort"
	"time"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// Surface is the mean latency of a batch over its size and the SMs of a share, for one quota. It interpolates measurements linearly, first
// between the measured SMs, then between the measured batch sizes. Below the measured SMs, latency is inversely proportional to the SMs, and
// above them it is constant. Below the measured sizes it is that of the smallest. Measurements are smoothed so that more SMs are never slower
// and a larger batch is never faster.
type Surface struct {
	batches []int             // measured sizes, ascending
	rows    [][]time.Duration // latencies for each size, by SMs in steps of surfaceStep
	longest [][]time.Duration // for each size, the longest latencies of it and all smaller sizes
}

// surfaceStep is the resolution of a Surface in per mille of the SMs.
const surfaceStep share.PerMille = 5

// NewSurface returns the surface through measurements of one model on shares with one quota. The error is a *share.FieldError.
func NewSurface(points []Point) (*Surface, error) {
	if len(points) == 0 {
		return nil, share.Invalid("points", "there are none")
	}
	byBatch := map[int][]Point{}
	for i, p := range points {
		field := fmt.Sprintf("points[%d]", i)
		if err := p.Validate(); err != nil {
			return nil, WithinField(field, err)
		}
		if first := points[0]; p.Resource.SM == 0 || p.Model != first.Model || p.Resource.Quota != first.Resource.Quota || p.Resource.Device != first.Resource.Device {
			return nil, share.Invalid(field, "want shares with the model, quota and device of points[0]")
		}
		byBatch[p.Batch] = append(byBatch[p.Batch], p)
	}
	s := &Surface{}
	for batch := range byBatch {
		s.batches = append(s.batches, batch)
	}
	slices.Sort(s.batches)
	for n, batch := range s.batches {
		row := interpolateSMs(byBatch[batch])
		longest := slices.Clone(row)
		if n > 0 {
			for i := range longest {
				longest[i] = max(longest[i], s.longest[n-1][i])
			}
		}
		s.rows, s.longest = append(s.rows, row), append(s.longest, longest)
	}
	return s, nil
}

// interpolateSMs returns the latencies of one batch size for all SMs in steps of surfaceStep. If the same SMs were measured several times, the
// slowest measurement counts.
func interpolateSMs(points []Point) []time.Duration {
	slices.SortFunc(points, func(a, b Point) int {
		return cmp.Or(cmp.Compare(a.Resource.SM, b.Resource.SM), cmp.Compare(b.Mean, a.Mean))
	})
	points = slices.CompactFunc(points, func(a, b Point) bool { return a.Resource.SM == b.Resource.SM })
	row := make([]time.Duration, share.Whole/surfaceStep+1)
	for i := range row {
		sm := max(share.PerMille(i)*surfaceStep, 1)
		at := slices.IndexFunc(points, func(p Point) bool { return p.Resource.SM >= sm })
		switch {
		case at < 0:
			row[i] = points[len(points)-1].Mean
		case at == 0:
			row[i] = time.Duration(float64(points[0].Mean) * float64(points[0].Resource.SM) / float64(sm))
		default:
			a, b := points[at-1], points[at]
			row[i] = between(a.Mean, b.Mean, float64(sm-a.Resource.SM)/float64(b.Resource.SM-a.Resource.SM))
		}
		if i > 0 {
			row[i] = min(row[i], row[i-1])
		}
	}
	return row
}

// between returns the duration at the fraction part of the way from a to b.
func between(a, b time.Duration, part float64) time.Duration {
	return a + time.Duration(part*float64(b-a))
}

// MaxBatch returns the largest batch size that was measured.
func (s *Surface) MaxBatch() int { return s.batches[len(s.batches)-1] }

// Latency returns the mean latency of a batch of 1 to MaxBatch on 0 to share.Whole SMs. The SMs are rounded down to steps of 5 per mille.
func (s *Surface) Latency(batch int, sm share.PerMille) time.Duration {
	i := sm / surfaceStep
	at, measured := slices.BinarySearch(s.batches, batch)
	if measured || at == 0 {
		return s.longest[at][i]
	}
	part := float64(batch-s.batches[at-1]) / float64(s.batches[at]-s.batches[at-1])
	return max(s.longest[at-1][i], between(s.rows[at-1][i], s.rows[at][i], part))
}

// LargestBatch returns the largest batch size whose latency on SMs is at most a bound, and at least 1.
func (s *Surface) LargestBatch(sm share.PerMille, bound time.Duration) int {
	return max(1, sort.Search(s.MaxBatch(), func(n int) bool { return s.Latency(n+1, sm) > bound }))
}

// FewestSMs returns the fewest SMs, from 0 to limit, with which a batch takes at most bound. It returns limit if none suffice.
func (s *Surface) FewestSMs(batch int, limit share.PerMille, bound time.Duration) share.PerMille {
	steps := int(limit/surfaceStep) + 1
	enough := sort.Search(steps, func(i int) bool { return s.Latency(batch, share.PerMille(i)*surfaceStep) <= bound })
	return min(share.PerMille(enough)*surfaceStep, limit)
}
