package scaling

import (
	"fmt"
	"time"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// Policy is how one function scales. What is zero stands for the default, but for Min.
type Policy struct {
	Window time.Duration // over which samples vote (DI-80); default 40 s
	Period time.Duration // least time between samples; default 1 s
	Out    int           // so many samples above the throughput scale out (DI-81, D23); default 20
	In     int           // more samples than these below the throughput of one instance less scale in (DI-82); default 30

	Min, Max int // hot instances at least, instances at all at most; 0 and 10. Min 0 scales to zero

	SharedFor time.Duration // without need, until an instance is Warm; default 30 s (U10)
	WarmFor   time.Duration // without need, until it is deleted (FF-43); default 10 min

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

// samples is how many samples a window holds at most.
func (p Policy) samples() int { return int(p.Window / p.Period) }

func (p Policy) validate() error {
	for _, check := range []struct {
		field  string
		ok     bool
		reason string
	}{
		{"period", p.Period > 0, "must be positive"},
		{"window", p.Window >= p.Period && p.Window/p.Period <= maxSamples, fmt.Sprintf("must hold 1 to %d samples", maxSamples)},
		{"out", p.Out >= 1 && p.Out <= p.samples(), "must be 1 to the samples of a window"},
		{"in", p.In >= 1 && p.In < p.samples(), "must be at least 1 and less than the samples of a window"},
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

// Bounds that keep one decision short.
const (
	maxSamples   = 3600
	maxInstances = 10_000
)
