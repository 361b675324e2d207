package scaling

import (
	"math"
	"math/rand/v2"
	"testing"
)

func series(n int, at func(i int) Rate) []Rate {
	s := make([]Rate, n)
	for i := range s {
		s[i] = at(i)
	}
	return s
}

func TestPredictors(t *testing.T) {
	level := series(40, func(int) Rate { return 50 })
	rise := series(40, func(i int) Rate { return Rate(2 * i) })
	fall := series(40, func(i int) Rate { return Rate(100 - 2*i) })
	step := series(40, func(i int) Rate { return Rate(100 * (i / 25)) })
	for name, c := range map[string]struct {
		predict   Predictor
		samples   []Rate
		low, high Rate
	}{
		"one sample":             {MeanOrTrend, []Rate{7}, 7, 7},
		"a level":                {MeanOrTrend, level, 50, 50},
		"a rise is looked ahead": {MeanOrTrend, rise, 83, 89}, // it is at 78, and at 88 five samples later
		"a fall is not believed": {MeanOrTrend, fall, 61, 61}, // the mean
		"a step":                 {MeanOrTrend, step, 100, 120},
		"filtered level":         {Kalman, level, 50, 50},
		"filtered rise lags":     {Kalman, rise, 70, 77},
		"filtered step":          {Kalman, step, 98, 100},
		"filtered, one sample":   {Kalman, []Rate{7}, 7, 7},
	} {
		t.Run(name, func(t *testing.T) {
			if got := c.predict(c.samples); got < c.low || got > c.high {
				t.Errorf("%v, want %v to %v", got, c.low, c.high)
			}
		})
	}
}

// On a level with noise, the filter errs far less than the last sample does; and its gain is that of the steady state,
// P/(P+R) with P = (Q + sqrt(Q^2+4QR))/2.
func TestKalman(t *testing.T) {
	random := rand.New(rand.NewPCG(6, 0))
	var filtered, last float64
	for range 500 {
		noisy := series(40, func(int) Rate { return Rate(100 + 10*random.NormFloat64()) })
		filtered += math.Pow(float64(Kalman(noisy)-100), 2)
		last += math.Pow(float64(noisy[39]-100), 2)
	}
	if filtered > last/4 {
		t.Errorf("squared error %.0f, of the last sample %.0f", filtered, last)
	}
	p := (1 + math.Sqrt(1+4*10)) / 2
	gain := p / (p + 10)
	impulse := series(40, func(i int) Rate { return Rate(i / 39) })
	if got := float64(Kalman(impulse)); math.Abs(got-gain) > 1e-6 {
		t.Errorf("gain %v, want %v", got, gain)
	}
}
