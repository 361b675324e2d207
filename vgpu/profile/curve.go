package profile

import (
	"math"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// Seconds is a predicted time. A prediction is no account, so it is a float.
type Seconds float64

// Latency is what a batch is predicted to take.
type Latency struct{ Mean, P99 Seconds }

// Spread takes the time as a fixed part and an exponential one, with the mean and the p99: the mean of that one. It is at
// most the whole.
func (l Latency) Spread() Seconds { return min((l.P99-l.Mean)/(math.Ln10*2-1), l.Mean) }

// Quantile returns the time that a part of the executions exceeds, above 0 and below 1: that of a hundredth is the p99.
func (l Latency) Quantile(late float64) Seconds {
	return l.P99 + l.Spread()*Seconds(math.Log(0.01/late))
}

// tail keeps the p99 from falling below the mean: fitted apart, the two curves may cross at their ends.
func tail(mean, p99 Seconds) Latency { return Latency{mean, max(mean, p99)} }

// Exponential is latency over vCPUs: alpha*exp(-c/beta) + gamma (PAMBA PA-10, eqs. 4.1, 4.2, 4.6, 4.7).
type Exponential struct {
	Alpha Seconds `json:"alpha"` // what more vCPUs can save
	Beta  float64 `json:"beta"`  // in vCPUs: how many save 63 % of it
	Gamma Seconds `json:"gamma"` // what remains
}

// At returns the latency on c.
func (e Exponential) At(c MilliCPU) Seconds {
	return e.Alpha*Seconds(math.Exp(-float64(c)/1000/e.Beta)) + e.Gamma
}

// maxCoefficient keeps predictions finite: no time or size in their units comes near it.
const maxCoefficient = 1e9

func inBounds(x, low float64) bool { return x >= low && x <= maxCoefficient } // false for NaN

// Validate returns an error for coefficients whose latency would not be positive, finite and falling. Errors are *share.FieldError.
func (e Exponential) Validate() error {
	switch {
	case !inBounds(float64(e.Alpha), 0):
		return share.Invalid("alpha", "%v is outside 0 to %g", e.Alpha, float64(maxCoefficient))
	case !inBounds(e.Beta, 1e-6):
		return share.Invalid("beta", "%v is outside 1e-06 to %g", e.Beta, float64(maxCoefficient))
	case !inBounds(float64(e.Gamma), 1e-9):
		return share.Invalid("gamma", "%v is outside 1e-09 to %g", e.Gamma, float64(maxCoefficient))
	}
	return nil
}

// Linear is slope*x + intercept: latency over the batch (PA-12, eq. 4.3), p99 over the worst case (PA-14, eq. 4.5),
// transfer over the batch (PA-17), or memory in MiB over the batch (P19).
type Linear struct {
	Slope     float64 `json:"slope"`
	Intercept float64 `json:"intercept"`
}

// At returns the value at x.
func (l Linear) At(x float64) float64 { return l.Slope*x + l.Intercept }

// Seconds returns a latency for a batch.
func (l Linear) Seconds(batch int) Seconds { return Seconds(l.At(float64(batch))) }

// Memory returns a size for a batch; the line is in MiB.
func (l Linear) Memory(batch int) share.Bytes {
	return share.Bytes(math.Ceil(l.At(float64(batch)))) * share.MiB
}

// Validate returns an error for a line that falls, or that is negative somewhere.
func (l Linear) Validate() error {
	switch {
	case !inBounds(l.Slope, 0):
		return share.Invalid("slope", "%v is outside 0 to %g", l.Slope, float64(maxCoefficient))
	case !inBounds(l.Intercept, 0):
		return share.Invalid("intercept", "%v is outside 0 to %g", l.Intercept, float64(maxCoefficient))
	}
	return nil
}

// positive also refuses a line that is zero at a batch of one.
func (l Linear) positive() error {
	if err := l.Validate(); err != nil {
		return err
	}
	if !(l.At(1) >= 1e-9) {
		return share.Invalid("slope, intercept", "%v and %v give no time for a batch of one", l.Slope, l.Intercept)
	}
	return nil
}
