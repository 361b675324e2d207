package scaling

import (
	"math/rand/v2"
	"testing"
	"time"
)

// ramp is the load of FaST-GShare's figure 12: from nothing to 110 requests/s and back to 50, give or take 20.
func ramp() []Rate {
	random := rand.New(rand.NewPCG(7, 0))
	var loads []Rate
	for _, step := range []struct {
		seconds int
		load    Rate
	}{{5, 0}, {10, 30}, {10, 40}, {10, 50}, {15, 60}, {15, 70}, {15, 80}, {15, 90}, {15, 100}, {15, 110}, {10, 100}, {10, 90}, {15, 70}, {80, 50}, {60, 20}} {
		for range step.seconds {
			loads = append(loads, max(0, step.load+min(0.4*step.load, 20)*Rate(2*random.Float64()-1)))
		}
	}
	return loads
}

// Eager, as the paper scales, replicas go to 4 and back to 1, as in its figure 12. The lazy window takes fewer decisions
// and leaves short peaks to vertical scaling, so its one wait per step is seen as load above the throughput.
func TestFaSTRamp(t *testing.T) {
	for name, c := range map[string]struct {
		policy      Policy
		most        int
		decisions   int // at most
		unservedMax Rate
	}{
		"eager": {Policy{Min: 1, Window: 3 * time.Second, Out: 1, In: 2}, 4, 60, 0.02},
		"lazy":  {Policy{Min: 1}, 3, 10, 0.05},
	} {
		t.Run(name, func(t *testing.T) {
			s, state, now := newScaler(t, c.policy, within(t, 200)...), State{}, time.Duration(0)
			most, decided, unserved, requests := 0, 0, Rate(0), Rate(0)
			for _, load := range ramp() {
				now += time.Second
				unserved, requests = unserved+max(0, load-hotOf(state)), requests+load
				decisions, next, err := s.Decide(now, Load{Rate: load}, state)
				if err != nil {
					t.Fatal(err)
				}
				state, decided = next, decided+len(decisions)
				most = max(most, len(state.hotInstances()))
			}
			t.Logf("at most %d hot, %d at the end, %d decisions, %.1f %% above the throughput", most, len(state.hotInstances()), decided, 100*unserved/requests)
			if most != c.most || len(state.hotInstances()) != 1 || decided > c.decisions || unserved > c.unservedMax*requests {
				t.Errorf("at most %d hot, %d at the end, %d decisions, %.3f above the throughput; want %+v", most, len(state.hotInstances()), decided, unserved/requests, c)
			}
		})
	}
}
