package sharing

import (
	"sync"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

// The ways in which a scheduling cycle looks at nodes.
const (
	narrowed     = "narrowed"    // the best candidates only
	wideByChoice = "wide"        // all nodes: few of them, a pod with preferences, or narrowing switched off
	wideForNone  = "wide_no_fit" // all nodes, since none fits: for the event and for preemption
	wideRetry    = "wide_retry"  // all nodes, in a further cycle, since every candidate was refused by other plugins
)

// What became of a pod with a share that was about to be bound.
const (
	wasBound  = "bound"
	notBound  = "not_bound"
	ambiguous = "ambiguous" // an attempt whose answer was lost; it is made again
)

// Why a pod is refused before any node is looked at.
const (
	badShare  = "bad_share"
	hasPlaced = "has_placement"
)

var binds = metrics.NewCounterVec(&metrics.CounterOpts{
	Name:           "gshare_scheduler_binds_total",
	Help:           "Attempts to bind a pod with a share, by what became of them.",
	StabilityLevel: metrics.ALPHA,
}, []string{"plugin", "result"})

var refusals = metrics.NewCounterVec(&metrics.CounterOpts{
	Name:           "gshare_scheduler_refused_total",
	Help:           "Scheduling cycles of pods whose share makes no sense on any node.",
	StabilityLevel: metrics.ALPHA,
}, []string{"plugin", "reason"})

var cycles = metrics.NewCounterVec(&metrics.CounterOpts{
	Name:           "gshare_scheduler_cycles_total",
	Help:           "Scheduling cycles of a packing plugin, by how nodes were chosen for filtering.",
	StabilityLevel: metrics.ALPHA,
}, []string{"plugin", "nodes"})

// registerMetrics adds the metrics to those of the scheduler, once for all profiles.
var registerMetrics = sync.OnceFunc(func() { legacyregistry.MustRegister(cycles, binds, refusals) })

func countCycle(plugin, nodes string) { cycles.WithLabelValues(plugin, nodes).Inc() }
