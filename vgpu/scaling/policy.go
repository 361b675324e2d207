package scaling

import (
	"fmt"
	"time"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// Policy configures how one function scales. Fields that are zero take their defaults, except Min.
type Policy struct {
	Window time.Duration // span of the samples that are counted (DI-80); default 40 s
	Period time.Duration // least time between samples; default 1 s
	Out    int           // number of samples above the throughput that scales out (DI-81, D23); default 20
	In     int           // scale in with more samples than this below the throughput of one instance fewer (DI-82); default 30

	Min, Max int // least number of hot instances, and greatest number of all; default 0, which scales to zero, and 10

	SharedFor time.Duration // after which an idle Shared instance becomes Warm; default 30 s (U10)
	WarmFor   time.Duration // after which an idle Warm instance is deleted (FF-43); default 10 min

	Predict  Predictor // default MeanOrTrend
	Residual Residual  // default LeastArea
}

func (p Policy) withDefaults() Policy {
	orDefault(&p.Window, 40*time.Second)
	orDefault(&p.Period, time.Second)
	orDefault(&p.Out, 20)
	orDefault(&p.In, 30)
	orDefault(&p.Max, 10)
	orDefault(&p.SharedFor, 30*time.Second)
	orDefault(&p.WarmFor, 10*time.Minute)
	if p.Predict == nil {
		p.Predict = MeanOrTrend
	}
	if p.Residual == nil {
		p.Residual = LeastArea
	}
	return p
}

func orDefault[T int | time.Duration](value *T, standard T) {
	if *value == 0 {
		*value = standard
	}
}

// samplesPerWindow returns the greatest number of load samples that a window holds.
func (p Policy) samplesPerWindow() int { return int(p.Window / p.Period) }

func (p Policy) validate() error {
	for _, check := range []struct {
		field  string
		ok     bool
		reason string
	}{
		{"period", p.Period > 0, "must be positive"},
		{"window", p.Window >= p.Period && p.Window/p.Period <= maxSamples, fmt.Sprintf("must hold 1 to %d samples", maxSamples)},
		{"out", p.Out >= 1 && p.Out <= p.samplesPerWindow(), "must be 1 to the samples of a window"},
		{"in", p.In >= 1 && p.In < p.samplesPerWindow(), "must be at least 1 and less than the samples of a window"},
		{"min", p.Min >= 0, "must not be negative"},
		{"max", p.Max >= 1 && p.Max >= p.Min && p.Max <= maxInstances, fmt.Sprintf("must be min to %d, at least 1", maxInstances)},
		{"sharedFor", p.SharedFor > 0, "must be positive"},
		{"warmFor", p.WarmFor > 0, "must be positive"},
	} {
		if !check.ok {
			return share.Invalid(check.field, "%s", check.reason)
		}
	}
	return nil
}

// Limits that bound the time of one decision.
const (
	maxSamples   = 3600
	maxInstances = 10_000
)
