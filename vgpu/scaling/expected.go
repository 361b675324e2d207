package scaling

import (
	"math/rand/v2"
	"time"

	"gonum.org/v1/gonum/stat/distuv"
)

// Seconds of a simulation: until the number of instances does not depend on the first one any more, and then.
const (
	expectedWarm   = 600
	expectedLength = 3600
)

// Expected returns how many hot instances of a configuration a Scaler has in the mean while requests come at random (a Poisson process) at a mean rate: what
// it decides in an hour of them, of which the same arguments always have the same. Where the rate is near to what some instances answer, that is one more
// than the rate needs, and where each answers less than a few requests a second, some more: half of the seconds have more requests than the mean. Errors are
// *share.FieldError.
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
		if _, state, err = s.Decide(time.Duration(second)*time.Second, Rate(arrivals.Rand()), state); err != nil {
			return 0, err
		}
		if second >= expectedWarm {
			sum += len(state.hotInstances())
		}
	}
	return float64(sum) / expectedLength, nil
}
