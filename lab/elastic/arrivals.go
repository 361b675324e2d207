package elastic

import (
	"math/rand/v2"
	"time"

	"gonum.org/v1/gonum/stat/distuv"
)

// A burst takes the first fifth of each of these times.
const burstPeriod = 10 * time.Second

// arrivals draws requests until the end: gaps of a gamma distribution with the coefficient of variation cv (1 is Poisson),
// and shorter by the factor of the burst while there is one.
func (t Tenant) arrivals(cv float64, end time.Duration, r *rand.Rand) []time.Duration {
	var list []time.Duration
	gap := distuv.Gamma{Alpha: 1 / (cv * cv), Beta: t.Rate / (cv * cv), Src: r}
	for at := time.Duration(0); ; {
		wait := gap.Rand()
		if t.Burst > 1 && at%burstPeriod < burstPeriod/5 {
			wait /= t.Burst
		}
		at += time.Duration(wait * float64(time.Second))
		if at >= end {
			return list
		}
		list = append(list, at)
	}
}
