package sharing

import (
	"sync"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

// Values of the label nodes: how a scheduling cycle chose the nodes to filter.
const (
	narrowed     = "narrowed"    // the best candidates only
	wideByChoice = "wide"        // all nodes: few of them, a pod with preferences, or narrowing switched off
	wideForNone  = "wide_no_fit" // all nodes, since none fits: for the event and for preemption
	wideRetry    = "wide_retry"  // all nodes, in a further cycle, since every candidate was refused by other plugins
)

// Values of the label result of binds.
const (
	wasBound  = "bound"
	notBound  = "not_bound"
	ambiguous = "ambiguous" // an attempt whose answer was lost; it is made again
)

// Values of the label reason: why a pod is refused before nodes are filtered.
const (
	badShare  = "bad_share"
	hasPlaced = "has_placement"
)

var binds = metrics.NewCounterVec(&metrics.CounterOpts{
	Name:           "gshare_scheduler_binds_total",
	Help:           "Attempts to bind a pod with a share, by result.",
	StabilityLevel: metrics.ALPHA,
}, []string{"plugin", "result"})

var refusals = metrics.NewCounterVec(&metrics.CounterOpts{
	Name:           "gshare_scheduler_refused_total",
	Help:           "Scheduling cycles of pods whose share is invalid on every node.",
	StabilityLevel: metrics.ALPHA,
}, []string{"plugin", "reason"})

var cycles = metrics.NewCounterVec(&metrics.CounterOpts{
	Name:           "gshare_scheduler_cycles_total",
	Help:           "Scheduling cycles of a packing plugin, by how nodes were chosen for filtering.",
	StabilityLevel: metrics.ALPHA,
}, []string{"plugin", "nodes"})

// registerMetrics registers the plugins' metrics with the scheduler's registry, once for all profiles.
var registerMetrics = sync.OnceFunc(func() { legacyregistry.MustRegister(cycles, binds, refusals) })

func countCycle(plugin, nodes string) { cycles.WithLabelValues(plugin, nodes).Inc() }
