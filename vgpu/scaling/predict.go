package scaling

// Predictor is a function that forecasts the load a few sampling periods ahead from the samples of the last window, which are ordered
// from the oldest and at least one. The forecast is never negative.
type Predictor func(samples []Rate) Rate

// MeanOrTrend is the default Predictor: it returns the larger of the samples' mean and their linear trend, so that the forecast follows a
// rise at once and a fall slowly.
func MeanOrTrend(samples []Rate) Rate { return max(mean(samples), holtForecast(samples)) } // F9

func mean(samples []Rate) Rate {
	var sum Rate
	for _, s := range samples {
		sum += s / Rate(len(samples)) // the sum of large rates need not be a number
	}
	return sum
}

// Weights of Holt's linear method. The level remembers about five samples and the slope about ten: short against a
// window of 40, long against the noise of a single second. The look-ahead is a short start of an instance.
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

// Variances of the one-dimensional Kalman filter of FaST-GShare's successor, HAS-GPU: of the load's change from sample to sample,
// and of the measurement.
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
