package profile

import (
	"cmp"
	"math"
	"slices"

	"gonum.org/v1/gonum/stat"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// MAPE is the mean absolute percentage error of a fitted curve over the points that it was fitted to, as a fraction.
type MAPE float64

func mape(x, y []float64, at func(float64) float64) MAPE {
	sum := 0.0
	for i := range x {
		sum += math.Abs(at(x[i])-y[i]) / y[i]
	}
	return MAPE(sum / float64(len(x)))
}

// FitLinear fits a line to positive values by least squares of relative errors. A negative slope or intercept is set to zero and the
// other one refitted, because execution time never falls with the batch size.
func FitLinear(x, y []float64) (Linear, MAPE, error) {
	if err := checkPoints(x, y, 2); err != nil {
		return Linear{}, 0, err
	}
	intercept, slope := stat.LinearRegression(x, y, inverseSquares(y), false)
	if slope < 0 {
		intercept, slope = stat.Mean(y, inverseSquares(y)), 0
	}
	if intercept < 0 {
		intercept, slope = stat.LinearRegression(x, y, inverseSquares(y), true)
	}
	line := Linear{Slope: slope, Intercept: intercept}
	return line, mape(x, y, line.At), line.Validate()
}

// inverseSquares returns the weights 1/y² with which a least-squares fit minimises relative errors.
func inverseSquares(y []float64) []float64 {
	w := make([]float64, len(y))
	for i := range y {
		w[i] = 1 / (y[i] * y[i])
	}
	return w
}

// FitExponential fits alpha*exp(-c/beta)+gamma to latencies over vCPUs. For a given beta the problem is linear, so it searches for beta
// alone: on a grid with 5 % between steps, then by golden-section search around the best.
func FitExponential(c []MilliCPU, y []float64) (Exponential, MAPE, error) {
	x := make([]float64, len(c))
	for i := range c {
		x[i] = float64(c[i])
	}
	if err := checkPoints(x, y, 3); err != nil {
		return Exponential{}, 0, err
	}
	at := func(beta float64) (Exponential, float64) { return fitGivenBeta(beta, c, y) }
	most := float64(slices.Max(c)) / 1000
	best, least := most, math.Inf(1)
	for beta := most / 1000; beta < 10*most; beta *= 1.05 {
		if _, e := at(beta); e < least {
			best, least = beta, e
		}
	}
	curve, _ := at(goldenSection(best/1.05, best*1.05, func(beta float64) float64 { _, e := at(beta); return e }))
	return curve, mape(x, y, func(c float64) float64 { return float64(curve.At(MilliCPU(c))) }), curve.Validate()
}

// fitGivenBeta fits alpha and gamma of an exponential curve for a given beta. It returns the curve and the sum of squared relative
// errors.
func fitGivenBeta(beta float64, c []MilliCPU, y []float64) (Exponential, float64) {
	x := make([]float64, len(c))
	for i := range c {
		x[i] = math.Exp(-float64(c[i]) / 1000 / beta)
	}
	gamma, alpha := stat.LinearRegression(x, y, inverseSquares(y), false)
	if !(alpha >= 0) { // NaN if all x are the same
		alpha, gamma = 0, stat.Mean(y, inverseSquares(y))
	}
	if gamma < 1e-9 {
		_, alpha = stat.LinearRegression(x, y, inverseSquares(y), true)
		gamma = 1e-9
	}
	e := Exponential{Alpha: Seconds(alpha), Beta: beta, Gamma: Seconds(gamma)}
	sum := 0.0
	for i := range c {
		r := float64(e.At(c[i]))/y[i] - 1
		sum += r * r
	}
	return e, sum
}

// goldenSection returns the x between low and high at which a unimodal function is least, by golden-section search to a millionth of the
// interval.
func goldenSection(low, high float64, f func(float64) float64) float64 {
	const ratio = 0.6180339887498949
	for range 29 {
		a, b := high-ratio*(high-low), low+ratio*(high-low)
		if f(a) < f(b) {
			high = b
		} else {
			low = a
		}
	}
	return (low + high) / 2
}

// checkPoints returns an error unless there are at least the given number of distinct x and all y are positive.
func checkPoints(x, y []float64, places int) error {
	sorted := slices.Sorted(slices.Values(x))
	if n := len(slices.Compact(sorted)); len(x) != len(y) || n < places {
		return share.Invalid("points", "%d different places for %d values; want at least %d", n, len(y), places)
	}
	return cmp.Or(eachInBounds("resource or batch", x), eachInBounds("latency", y))
}

func eachInBounds(field string, values []float64) error {
	for _, v := range values {
		if !inBounds(v, 1e-9) {
			return share.Invalid(field, "%v is not positive and finite", v)
		}
	}
	return nil
}
