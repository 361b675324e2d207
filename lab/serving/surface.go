package serving

import (
	"cmp"
	"slices"
	"time"

	"github.com/gshare-dev/gshare/vgpu/profile"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// latencySurface is the latency of a batch by size and SMs, interpolated linearly between measured SMs, then between measured batch
// sizes. Below the measured SMs latency is inversely proportional to them; above, it is constant. Measurements are smoothed so that more
// SMs are never slower and a larger batch is never faster.
type latencySurface struct {
	takes [][]time.Duration // by batch-1, then by SMs in steps of surfaceStep
}

// surfaceStep is the resolution of a latencySurface in per mille of the SMs.
const surfaceStep share.PerMille = 5

// newSurface returns the latency surface through measurements of one model with equal quota.
func newSurface(points []profile.Point) *latencySurface {
	byBatch := map[int][]profile.Point{}
	for _, p := range points {
		byBatch[p.Batch] = append(byBatch[p.Batch], p)
	}
	var batches []int
	rows := map[int][]time.Duration{}
	for b, row := range byBatch {
		batches = append(batches, b)
		rows[b] = interpolateSMs(row)
	}
	slices.Sort(batches)
	s := &latencySurface{}
	for b := 1; b <= batches[len(batches)-1]; b++ {
		s.takes = append(s.takes, interpolateBatch(rows, batches, b))
	}
	for b := 1; b < len(s.takes); b++ {
		for i := range s.takes[b] {
			s.takes[b][i] = max(s.takes[b][i], s.takes[b-1][i])
		}
	}
	return s
}

// interpolateSMs returns the latencies of one batch size for all SMs in steps of surfaceStep.
func interpolateSMs(points []profile.Point) []time.Duration {
	slices.SortFunc(points, func(a, b profile.Point) int { return cmp.Compare(a.Resource.SM, b.Resource.SM) })
	row := make([]time.Duration, share.Whole/surfaceStep+1)
	for i := range row {
		sm := max(share.PerMille(i)*surfaceStep, 1)
		at := slices.IndexFunc(points, func(p profile.Point) bool { return p.Resource.SM >= sm })
		switch {
		case at < 0:
			row[i] = points[len(points)-1].Mean
		case at == 0:
			row[i] = time.Duration(float64(points[0].Mean) * float64(points[0].Resource.SM) / float64(sm))
		default:
			a, b := points[at-1], points[at]
			row[i] = line(a.Mean, b.Mean, float64(sm-a.Resource.SM)/float64(b.Resource.SM-a.Resource.SM))
		}
		if i > 0 {
			row[i] = min(row[i], row[i-1])
		}
	}
	return row
}

// interpolateBatch returns the latencies of batch size b, interpolated between those of the nearest measured sizes. A size below the
// smallest measured one has the latencies of that one.
func interpolateBatch(rows map[int][]time.Duration, batches []int, b int) []time.Duration {
	at := slices.IndexFunc(batches, func(x int) bool { return x >= b })
	high := rows[batches[at]]
	if at == 0 || batches[at] == b {
		return slices.Clone(high)
	}
	low := rows[batches[at-1]]
	part := float64(b-batches[at-1]) / float64(batches[at]-batches[at-1])
	row := make([]time.Duration, len(high))
	for i := range row {
		row[i] = line(low[i], high[i], part)
	}
	return row
}

func line(a, b time.Duration, part float64) time.Duration {
	return a + time.Duration(part*float64(b-a))
}

// largestBatch returns the largest batch size whose latency on the given SMs is at most the time bound; at least 1.
func (s *latencySurface) largestBatch(sm share.PerMille, bound time.Duration) int {
	batch := 1
	for batch < len(s.takes) && s.latency(batch+1, sm) <= bound {
		batch++
	}
	return batch
}

// fewestSMs returns the fewest SMs, at most limit, with which a batch takes at most the time bound. It returns limit if none suffice.
func (s *latencySurface) fewestSMs(batch int, limit share.PerMille, bound time.Duration) share.PerMille {
	row := s.takes[batch-1][:limit/surfaceStep+1]
	at, _ := slices.BinarySearchFunc(row, bound, func(t, target time.Duration) int { return cmp.Compare(target, t) })
	return min(share.PerMille(at)*surfaceStep, limit)
}

// latency returns the latency of a batch on the given SMs.
func (s *latencySurface) latency(batch int, sm share.PerMille) time.Duration {
	return s.takes[batch-1][sm/surfaceStep]
}
