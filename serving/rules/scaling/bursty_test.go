package scaling

import (
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gshare-dev/gshare/test/published"
)

// bursty returns Dilu's public bursty load: requests/s, second by second.
func bursty(t *testing.T) []Rate {
	t.Helper()
	var loads []Rate
	for _, field := range strings.Fields(published.Read(t, "dilu/bursty.txt")) {
		load, err := strconv.ParseFloat(field, 64)
		if err != nil {
			t.Fatal(err)
		}
		loads = append(loads, Rate(load))
	}
	return loads
}

// coldStart is how long an instance takes to serve once it is created.
const coldStart = 10 * time.Second

// outcome is what a policy costs: instances started, and the part of the load that the hot instances do not serve
// even at their limits, twice their throughput.
type outcome struct {
	cold       int
	unserved   Rate
	hotSeconds int
}

func replay(t *testing.T, policy Policy, loads []Rate) outcome {
	t.Helper()
	s := newScaler(t, policy, Configuration{Share: size.Share, Throughput: 2})
	var o outcome
	ready := map[ID]time.Duration{}
	var state State
	var all Rate
	for second, load := range loads {
		now := time.Duration(second) * time.Second
		decisions, next, err := s.Decide(now, Load{Rate: load}, state)
		if err != nil {
			t.Fatal(err)
		}
		state = next
		for _, d := range decisions {
			if d.Action == Create {
				o.cold++
				ready[d.Instance.ID] = now + coldStart
			}
		}
		served := Rate(0)
		for _, i := range state.Instances {
			if i.Residency == Hot && ready[i.ID] <= now {
				served += 2 * i.Configuration.Throughput
			}
		}
		all, o.unserved, o.hotSeconds = all+load, o.unserved+max(0, load-served), o.hotSeconds+len(state.hotInstances())
	}
	o.unserved /= all
	return o
}

// On Dilu's bursty load, lazy scaling starts at most a quarter of the instances that eager scaling does, and demotion at most two
// thirds of these, while no more of the load goes unserved (the direction of Dilu's Table 3).
func TestDiluBursty(t *testing.T) {
	eager, lazy, demoting := compareScaling(t, bursty(t))
	if 4*lazy.cold > eager.cold || 3*demoting.cold > 2*lazy.cold || max(lazy.unserved, demoting.unserved) > eager.unserved {
		t.Errorf("eager %+v, lazy %+v, demoting %+v: want a quarter of the starts, two thirds of these, and no more unserved", eager, lazy, demoting)
	}
}

// On noise around a base rate with bursts of 5 to 90 s at three to six times that rate, lazy scaling that demotes starts at most a
// quarter of the instances that eager scaling does, while no more of the load goes unserved.
func TestBursty(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 7))
	var loads []Rate
	for len(loads) < 3000 {
		for range 20 + random.IntN(60) {
			loads = append(loads, Rate(2*random.Float64()+1))
		}
		height := 6 + 6*random.Float64()
		for range []int{5, 10, 60, 90}[random.IntN(4)] {
			loads = append(loads, Rate(height+2*random.Float64()))
		}
	}
	eager, _, demoting := compareScaling(t, loads)
	if 4*demoting.cold > eager.cold || demoting.unserved > eager.unserved {
		t.Errorf("eager %+v, demoting %+v: want a quarter of the starts and no more unserved", eager, demoting)
	}
}

func compareScaling(t *testing.T, loads []Rate) (eager, lazy, demoting outcome) {
	t.Helper()
	const soon = time.Nanosecond
	eager = replay(t, Policy{Min: 1, Window: 3 * time.Second, Out: 1, In: 2, SharedFor: soon, WarmFor: soon}, loads)
	lazy = replay(t, Policy{Min: 1, SharedFor: soon, WarmFor: soon}, loads)
	demoting = replay(t, Policy{Min: 1}, loads)
	t.Logf("eager: %+v", eager)
	t.Logf("lazy: %+v", lazy)
	t.Logf("lazy, demoting: %+v", demoting)
	return eager, lazy, demoting
}
