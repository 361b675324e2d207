package scaling

// Predictor expects a load from the samples of the last window, oldest first, at least one (F9, FG-02). It looks a few
// samples ahead and is never negative.
type Predictor func(samples []Rate) Rate

// MeanOrTrend is the larger of the mean of the samples and of their trend: a fall is believed slowly, a rise at once.
func MeanOrTrend(samples []Rate) Rate { return max(mean(samples), trend(samples)) }

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

// trend extends an exponentially weighted level by an exponentially weighted slope (Holt's linear method).
func trend(samples []Rate) Rate {
	level, slope := samples[0], Rate(0)
	for _, s := range samples[1:] {
		last := level
		level = levelWeight*s + (1-levelWeight)*(level+slope)
		slope = slopeWeight*(level-last) + (1-slopeWeight)*slope
	}
	return max(0, level+lookAhead*slope)
}

// Variances of the one-dimensional filter of FaST-GShare's successor, HAS-GPU: of the load's own changes from sample to
// sample, and of the measurement.
const (
	processVariance     = 1
	measurementVariance = 10
)

// Kalman filters the samples as the output of a load that changes at random and is measured with noise (A = H = 1). It
// follows a step within about ten samples and has no trend.
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
