package profile

import (
	"cmp"
	"fmt"
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
// alone: on a grid with steps of 5 %, then by golden-section search around the best grid value.
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

// checkPoints returns an error unless x has at least the given number of distinct values and all x and y are positive.
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

// FitTail fits the p99 latency over the worst case of the time-slicing model to measurements on shares (PAMBA, eq. 4.5). What PAMBA
// sells as m of the M GB of a card's memory is here a share with all SMs and the quota m/M.
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
