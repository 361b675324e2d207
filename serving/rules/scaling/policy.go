package scaling

import (
	"fmt"
	"time"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// Policy configures how one function scales. A field that is zero takes its default, except Min, for which zero is a value.
type Policy struct {
	Window time.Duration // span of the samples that count; default 40 s
	Period time.Duration // least time between samples; default 1 s
	Out    int           // scale out at this many samples above the throughput; default 20
	In     int           // scale in at more than this many samples below the throughput of one instance fewer; default 30

	Min, Max int // least number of hot instances (default 0: scale to zero) and greatest number of all instances (default 10)

	SharedFor time.Duration // after which an idle Shared instance becomes Warm; default 30 s (U10)
	Reserve   bool          // keep every instance that is not needed Shared for SharedFor, not only one at a time
	WarmFor   time.Duration // after which an idle Warm instance is deleted; default 10 min

	Predict Predictor // default MeanOrTrend
}

// Votes returns a GPUFunction's default Out and In for a window of the given number of samples: one, as requests that come while replicas are missing
// are late, and half of them, as a replica that is given up too early is in reserve.
func Votes(samples int) (out, in int) { return 1, max(1, samples/2) }

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

// Limits on the cost of one decision.
const (
	maxSamples   = 3600
	maxInstances = 10_000
)

// Predictor is a function that forecasts the load a few sampling periods ahead from the samples of the last window, oldest first.
// There is at least one sample. The forecast is never negative.
type Predictor func(samples []Rate) Rate

// MeanOrTrend is the default Predictor: it returns the larger of the samples' mean and their linear trend, so that the forecast follows a
// rise at once and a fall slowly.
func MeanOrTrend(samples []Rate) Rate { return max(mean(samples), holtForecast(samples)) } // F9

func mean(samples []Rate) Rate {
	var sum Rate
	for _, s := range samples {
		sum += s / Rate(len(samples)) // divide each sample: the sum of large rates could overflow
	}
	return sum
}

// Weights of Holt's linear method. The level remembers about five samples and the slope about ten: few compared
// with a window of 40, and enough to even out the noise of a single second. The look-ahead is the time of a fast
// instance start.
const (
	levelWeight = 0.3
	slopeWeight = 0.2
	lookAhead   = 5 // samples
)

// holtForecast returns the load expected lookAhead samples after the last one, by Holt's linear method: an exponentially weighted level,
// extrapolated by an exponentially weighted slope.
func holtForecast(samples []Rate) Rate {
	level, slope := samples[0], Rate(0)
	for _, s := range samples[1:] {
		last := level
		level = levelWeight*s + (1-levelWeight)*(level+slope)
		slope = slopeWeight*(level-last) + (1-slopeWeight)*slope
	}
	return max(0, level+lookAhead*slope)
}

// Variances of the one-dimensional Kalman filter of HAS-GPU, FaST-GShare's successor: the variance of the load's change from
// sample to sample, and that of the measurement.
const (
	processVariance     = 1
	measurementVariance = 10
)

// Kalman is a Predictor that filters the samples as noisy measurements of a load that changes at random (a Kalman filter with A = H = 1).
// It follows a step within about ten samples and does not extrapolate.
func Kalman(samples []Rate) Rate {
	level, variance := samples[0], Rate(measurementVariance)
	for _, s := range samples[1:] {
		variance += processVariance
		gain := variance / (variance + measurementVariance)
		level += gain * (s - level)
		variance *= 1 - gain
	}
	return level
}
