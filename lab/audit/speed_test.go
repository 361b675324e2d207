package audit

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/gshare-dev/gshare/vgpu/kube"
)

// busyCluster has nodes of 8 slices, each with two shares that leave a third to a half of the SM-time.
func busyCluster(t testing.TB, nodes int, m kube.FitModel, random *rand.Rand) *cluster {
	c := newCluster(t)
	for n := range nodes {
		name := fmt.Sprintf("n%04d", n)
		var gpus []kube.Slice
		for g := range 8 {
			gpus = append(gpus, gpu(fmt.Sprintf("%s-%d", name, g)))
		}
		c.node(name, gpus...)
		for _, g := range gpus {
			c.several(2, spec{node: name, slices: []string{g.ID}, sm: 50 + random.Int64N(15), quota: 40 + random.Int64N(8),
				memory: 1000, packing: m})
		}
	}
	return c
}

// TestSpeed asks for 600 pods, no two alike, on 1213 nodes: small ones that find a place soon, and large ones for which
// every slice has to be asked.
func TestSpeed(t *testing.T) {
	if testing.Short() {
		t.Skip("large")
	}
	for model, scheduler := range map[kube.FitModel]string{kube.Slots: kube.SchedulerName, kube.Rectangles: rectangleScheduler} {
		random := rand.New(rand.NewPCG(1, 2))
		c := busyCluster(t, 1213, model, random)
		began := time.Now()
		r := c.check()
		t.Logf("%s: check %v, %d violations", model, time.Since(began), len(r.Violations))
		for _, sm := range []int64{20, 55} {
			askFor600(t, c, r, sm, scheduler, random)
		}
	}
}

func askFor600(t *testing.T, c *cluster, r Report, sm int64, scheduler string, random *rand.Rand) {
	began, hits := time.Now(), 0
	for i := range int64(600) {
		pod := c.make(spec{name: "w", sm: sm + random.Int64N(20), quota: 10 + i%40, memory: 1 + i})
		pod.Spec.SchedulerName = scheduler
		hits += len(r.Admissible(pod))
	}
	t.Logf("600 pods of %d %% and more: %v, %d nodes each", sm, time.Since(began), hits/600)
	if spent := time.Since(began); spent > time.Minute {
		t.Errorf("600 pods took %v", spent)
	}
}
