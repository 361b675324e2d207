package profiler

import (
	"math"

	"github.com/gshare-dev/gshare/vgpu/profile"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// Recommendation is what a record says that a function should get.
type Recommendation struct {
	Resource profile.Resource
	Memory   share.Bytes // 0 if it was not measured
	Batch    int
	Rate     float64 // rows a second that a replica answers within the objective, rounded down to three digits
}

// memoryUnit is the unit to which recommended memory is rounded up.
const memoryUnit = 64 * share.MiB

// Recommend returns the share of the best trial. Its memory is the most that the server has used in any trial and a tenth more, at most what it was
// allowed. The error is search.ErrNoSetting if no trial meets the objective.
func (r *Record) Recommend() (Recommendation, error) {
	best, err := r.Best()
	if err != nil {
		return Recommendation{}, err
	}
	most := share.Bytes(0)
	for _, t := range r.Trials {
		most = max(most, t.Point.Memory)
	}
	found := Recommendation{Resource: best.Point.Resource, Batch: best.Point.Batch}
	if most > 0 {
		found.Memory = min((most+most/10+memoryUnit-1)/memoryUnit*memoryUnit, max(r.Plan.Memory, memoryUnit))
	}
	digits := math.Pow10(2 - int(math.Floor(math.Log10(best.Point.Throughput))))
	found.Rate = math.Floor(best.Point.Throughput*digits) / digits
	return found, nil
}
