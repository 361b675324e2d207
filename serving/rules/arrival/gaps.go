package arrival

import (
	"math/rand/v2"

	"gonum.org/v1/gonum/stat/distuv"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// Gaps is a function that draws the gap between two arrivals, in multiples of the mean gap.
type Gaps func(*rand.Rand) float64

// Exponential draws the gaps of a Poisson process.
func Exponential(r *rand.Rand) float64 { return r.ExpFloat64() }

// Even returns the mean gap: arrivals are evenly spaced while the rate is constant.
func Even(*rand.Rand) float64 { return 1 }

// Gamma returns a function that draws gaps from a gamma distribution whose standard deviation is cv times the mean: with cv below 1,
// arrivals are more regular than those of a Poisson process, above 1 they come in bursts. The error is a *share.FieldError.
func Gamma(cv float64) (Gaps, error) {
	if !(cv >= 0.01 && cv <= 100) {
		return nil, share.Invalid("cv", "%v is outside 0.01 to 100", cv)
	}
	alpha := 1 / (cv * cv)
	return func(r *rand.Rand) float64 { return distuv.Gamma{Alpha: alpha, Beta: alpha, Src: r}.Rand() }, nil
}

// Ramp returns a series with steps of one second whose rate changes linearly between two numbers of requests per second.
func Ramp(from, to float64, seconds int) Series {
	s := Series{Name: "ramp", Step: second}
	for i := range seconds {
		s.Counts = append(s.Counts, from+(to-from)*(float64(i)+0.5)/float64(seconds))
	}
	return s
}
