package scaling

import (
	"math/rand/v2"
	"time"

	"gonum.org/v1/gonum/stat/distuv"
)

// Seconds of simulation: first those until the initial number of instances has no influence any more, then those that are measured.
const (
	expectedWarm   = 600
	expectedLength = 3600
)

// Expected returns the mean number of hot instances that a Scaler keeps of one configuration while requests arrive at random (a Poisson process) with the
// given mean rate. It simulates the Scaler's decisions over an hour; equal arguments give equal results. The result can exceed what the mean rate needs,
// because half of the seconds have more requests than the mean: by one instance if the rate is close to the throughput of a whole number of instances, and
// by more if one instance answers less than a few requests a second. Errors are *share.FieldError.
func Expected(policy Policy, instance Configuration, rate Rate) (float64, error) {
	s, err := New(policy, []Configuration{instance})
	if err != nil {
		return 0, err
	}
	if err := checkLoad(rate); err != nil || rate == 0 {
		return float64(policy.Min), err
	}
	arrivals := distuv.Poisson{Lambda: float64(rate), Src: rand.NewPCG(1, 2)}
	state, sum := State{}, 0
	for second := range expectedWarm + expectedLength {
		if _, state, err = s.Decide(time.Duration(second)*time.Second, Load{Rate: Rate(arrivals.Rand())}, state); err != nil {
			return 0, err
		}
		if second >= expectedWarm {
			sum += len(state.hotInstances())
		}
	}
	return float64(sum) / expectedLength, nil
}
