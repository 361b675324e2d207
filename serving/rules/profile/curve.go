package profile

import (
	"encoding/json"
	"fmt"
	"math"
	"time"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// Seconds is a predicted time. It is a float because predictions may be fractions.
type Seconds float64

// UnmarshalJSON implements json.Unmarshaler. It accepts a number of seconds, or a text with a unit, such as "69ms".
func (s *Seconds) UnmarshalJSON(text []byte) error {
	var duration string
	if json.Unmarshal(text, &duration) != nil {
		return json.Unmarshal(text, (*float64)(s))
	}
	value, err := time.ParseDuration(duration)
	if err != nil {
		return fmt.Errorf("%.64q is neither a number of seconds nor a time such as 69ms", duration)
	}
	*s = Seconds(value.Seconds())
	return nil
}

// Latency is the predicted mean and p99 execution time of a batch.
type Latency struct{ Mean, P99 Seconds }

// Spread returns the mean of the random part of the execution time. The execution time is modelled as a constant plus an exponential
// variable, such that mean and p99 are as predicted. Spread is at most Mean.
func (l Latency) Spread() Seconds { return min((l.P99-l.Mean)/(math.Ln10*2-1), l.Mean) }

// Quantile returns the time that the fraction late of executions exceeds, with late between 0 and 1. Quantile(0.01) is the p99.
func (l Latency) Quantile(late float64) Seconds {
	return l.P99 + l.Spread()*Seconds(math.Log(0.01/late))
}

// newLatency returns a Latency whose p99 is at least its mean: separately fitted curves may cross at their ends.
func newLatency(mean, p99 Seconds) Latency { return Latency{mean, max(mean, p99)} }

// Exponential is a curve of latency over vCPUs: alpha*exp(-c/beta) + gamma (PAMBA, eqs. 4.1, 4.2, 4.6, 4.7).
type Exponential struct {
	Alpha Seconds `json:"alpha"` // latency that more vCPUs can save
	Beta  float64 `json:"beta"`  // number of vCPUs that saves 63 % of Alpha
	Gamma Seconds `json:"gamma"` // latency that remains with any number of vCPUs
}

// At returns the latency on c vCPUs.
func (e Exponential) At(c MilliCPU) Seconds {
	return e.Alpha*Seconds(math.Exp(-float64(c)/1000/e.Beta)) + e.Gamma
}

// maxCoefficient is the largest valid coefficient of a latency model, so that predictions are finite. It exceeds all real times and
// sizes.
const maxCoefficient = 1e9

func inBounds(x, low float64) bool { return x >= low && x <= maxCoefficient } // false for NaN

// Validate returns a *share.FieldError unless the latency is positive, finite and falls with the vCPUs.
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

// Linear is the line slope*x + intercept. It models latency, transfer time or memory (in MiB) over the batch size, or the p99 latency
// over the worst case of time slicing (PAMBA, eqs. 4.3, 4.5).
type Linear struct {
	Slope     float64 `json:"slope"`
	Intercept float64 `json:"intercept"`
}

// At returns the value of the line at x.
func (l Linear) At(x float64) float64 { return l.Slope*x + l.Intercept }

// Seconds returns the value at a batch size, for a line of times.
func (l Linear) Seconds(batch int) Seconds { return Seconds(l.At(float64(batch))) }

// Memory returns the memory of a batch in bytes, for a line in MiB.
func (l Linear) Memory(batch int) share.Bytes {
	return share.Bytes(math.Ceil(l.At(float64(batch)))) * share.MiB
}

// Validate returns a *share.FieldError if the line falls or is negative at zero.
func (l Linear) Validate() error {
	switch {
	case !inBounds(l.Slope, 0):
		return share.Invalid("slope", "%v is outside 0 to %g", l.Slope, float64(maxCoefficient))
	case !inBounds(l.Intercept, 0):
		return share.Invalid("intercept", "%v is outside 0 to %g", l.Intercept, float64(maxCoefficient))
	}
	return nil
}

// validatePositive returns an error unless the line is valid and above zero at a batch of one.
func (l Linear) validatePositive() error {
	if err := l.Validate(); err != nil {
		return err
	}
	if !(l.At(1) >= 1e-9) {
		return share.Invalid("slope, intercept", "%v and %v give no time for a batch of one", l.Slope, l.Intercept)
	}
	return nil
}
