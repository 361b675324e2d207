package rebalancing

import (
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/gshare-dev/gshare/vgpu/kube/rebalanceview"
	"github.com/gshare-dev/gshare/vgpu/rebalance"
)

// The plugin's own metrics. The descheduler's descheduler_pods_evicted_total counts its evictions with strategy="GPURebalance".
var (
	movable = metrics.NewGauge(&metrics.GaugeOpts{
		Name: "gshare_rebalance_movable_pods", Help: "Pods with shares that may be moved, as of the last cycle.",
		StabilityLevel: metrics.ALPHA,
	})
	fixed = metrics.NewGaugeVec(&metrics.GaugeOpts{
		Name: "gshare_rebalance_fixed_pods", Help: "Pods with shares that may not be moved, by the reason, as of the last cycle.",
		StabilityLevel: metrics.ALPHA,
	}, []string{"reason"})
	waiting = metrics.NewGauge(&metrics.GaugeOpts{
		Name: "gshare_rebalance_waiting_pods", Help: "Pods that request shares and that the scheduler tries to place, as of the last cycle.",
		StabilityLevel: metrics.ALPHA,
	})
	planned = metrics.NewCounter(&metrics.CounterOpts{
		Name: "gshare_rebalance_planned_moves_total", Help: "Pods that a step was to evict.", StabilityLevel: metrics.ALPHA,
	})
	freed = metrics.NewCounter(&metrics.CounterOpts{
		Name: "gshare_rebalance_planned_gpus_total", Help: "GPUs that a step was to free, for a waiting pod or any.", StabilityLevel: metrics.ALPHA,
	})
)

func init() { legacyregistry.MustRegister(movable, fixed, waiting, planned, freed) }

// observe records the state of the cluster and the step that a cycle makes.
func observe(view *rebalanceview.View, step rebalance.Plan) {
	movable.Set(float64(len(view.Pods)))
	waiting.Set(float64(len(view.Waiting)))
	fixed.Reset()
	for reason, n := range view.Fixed {
		fixed.WithLabelValues(string(reason)).Set(float64(n))
	}
	planned.Add(float64(len(step.Moves)))
	freed.Add(float64(len(step.Freed)))
}
