package profiler

import (
	"cmp"
	"math"
	"slices"

	"github.com/gshare-dev/gshare/serving/rules/profile"
	"github.com/gshare-dev/gshare/serving/rules/profile/search"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// Recommendation is what a function should get according to a record.
type Recommendation struct {
	Resource profile.Resource
	SMLimit  share.PerMille // SMs that it may use while others leave them idle, at least those of Resource; 0 if the search gives no limit
	Memory   share.Bytes    // 0 if it was not measured
	Batch    int
	Rate     float64 // rows per second that a replica answers within the objective, rounded down to three digits
	Smaller  []Smaller
}

// Smaller is a share with less SM-time (SMs times quota) than the recommended one, but a lower rate within the objective at the same batch size.
type Smaller struct {
	Resource profile.Resource
	Rate     float64 // as in Recommendation; 5 % less than measured if the rate was not confirmed
}

// maxSmaller is the greatest number of smaller shares in a Recommendation.
const maxSmaller = 8

// memoryUnit is the unit to which recommended memory is rounded up.
const memoryUnit = 64 * share.MiB

// Recommend returns the share of the best trial of a search. Its memory is the most that the server used in any trial plus a tenth, but no more
// than the server was allowed. The errors are those of Best.
func (r *Record) Recommend(s search.Strategy) (Recommendation, error) {
	best, err := r.Best(s)
	if err != nil {
		return Recommendation{}, err
	}
	most := share.Bytes(0)
	for _, t := range r.Trials {
		most = max(most, t.Point.Memory)
	}
	found := Recommendation{Resource: best.Point.Resource, Batch: best.Point.Batch}
	switch s := s.(type) {
	case search.Growth:
		found.SMLimit = s.Limit(best.Point.Resource.SM)
	case search.Bisection:
		both, err := s.Result(r.history())
		if err != nil {
			return Recommendation{}, err
		}
		found.SMLimit = both.SMLimit
	}
	if most > 0 {
		found.Memory = min((most+most/10+memoryUnit-1)/memoryUnit*memoryUnit, max(r.Plan.Memory, memoryUnit))
	}
	found.Rate, found.Smaller = roundedDown(best.Point.Throughput), r.smallerThan(&best)
	return found, nil
}

// roundedDown returns a rate above 0 rounded down to three digits.
func roundedDown(rate float64) float64 {
	digits := math.Pow10(2 - int(math.Floor(math.Log10(rate))))
	return math.Floor(rate*digits) / digits
}

// smallerThan returns shares with less SM-time than the best trial's, the smallest first. It leaves out a share if a smaller one answers at least as
// much. If too many are left, it keeps those that take the least SM-time per request.
func (r *Record) smallerThan(best *Trial) []Smaller {
	var trials []*Trial
	for at := range r.Trials {
		t := &r.Trials[at]
		if t.SMTime() > 0 && !t.ClientLate && t.Point.Batch == best.Point.Batch && area(t) < area(best) && t.Point.Throughput < best.Point.Throughput {
			trials = append(trials, t)
		}
	}
	slices.SortFunc(trials, func(a, b *Trial) int {
		return cmp.Or(cmp.Compare(area(a), area(b)), cmp.Compare(b.Point.Throughput, a.Point.Throughput), cmp.Compare(a.Point.Resource.SM, b.Point.Resource.SM))
	})
	most := 0.0
	trials = slices.DeleteFunc(trials, func(t *Trial) bool {
		before := most
		most = max(most, t.Point.Throughput)
		return t.Point.Throughput <= before
	})
	for len(trials) > maxSmaller {
		worst := slices.MaxFunc(trials, func(a, b *Trial) int { return cmp.Compare(a.SMTime(), b.SMTime()) })
		trials = slices.DeleteFunc(trials, func(t *Trial) bool { return t == worst })
	}
	var found []Smaller
	for _, t := range trials {
		rate := t.Point.Throughput
		if !t.Confirmed {
			rate *= 1 - precision
		}
		found = append(found, Smaller{t.Point.Resource, roundedDown(rate)})
	}
	return found
}

// area returns the SM-time of a trial's share: SMs times quota.
func area(t *Trial) share.Area {
	return share.Area(t.Point.Resource.SM) * share.Area(t.Point.Resource.Quota)
}
