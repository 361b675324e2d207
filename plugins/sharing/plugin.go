// Package sharing implements the extension points of the packing plugins: it reads pods and nodes, lets vgpu/packing decide, and writes
// the placement to the API server. It does no GPU arithmetic of its own.
package sharing

import (
	"context"
	"fmt"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/gshare-dev/gshare/plugins/ledger"
	"github.com/gshare-dev/gshare/plugins/registry"
	"github.com/gshare-dev/gshare/vgpu/packing"
)

// Config holds the packing plugin and the ledger of assumed placements with which New creates a scheduler plugin.
type Config struct {
	registry.Plugin
	Ledger *ledger.Ledger // shared by all profiles of the process
}

// Plugin is a packing plugin of one scheduler profile. It has many methods because the scheduler framework requires one value to
// implement all extension points, here twelve; each is in a file of its own, with its helpers.
type Plugin struct {
	name           string
	handle         fwk.Handle
	pods           corelisters.PodLister
	rules          packing.Rules
	ranker         func(*packing.Demand) packing.Ranker
	candidates     int
	bestFit        packing.Packer // places pods that have no placement yet; unlike the fleet's packer it never changes
	ledger         *ledger.Ledger
	podInfos       *podInfos
	fleet          *fleet
	breadths       breadths // of pods whose nodes other plugins have refused, until a node is reserved for them
	reportedErrors reportedErrors
	inventories    inventories
}

var (
	_ fwk.PreFilterPlugin   = &Plugin{}
	_ fwk.FilterPlugin      = &Plugin{}
	_ fwk.PostFilterPlugin  = &Plugin{}
	_ fwk.PreScorePlugin    = &Plugin{}
	_ fwk.ScorePlugin       = &Plugin{}
	_ fwk.ScoreExtensions   = &Plugin{}
	_ fwk.ReservePlugin     = &Plugin{}
	_ fwk.BindPlugin        = &Plugin{}
	_ fwk.EnqueueExtensions = &Plugin{}
	_ fwk.SignPlugin        = &Plugin{}
)

// New returns a packing plugin for one scheduler profile and registers its informer handlers and metrics.
func New(ctx context.Context, c Config, handle fwk.Handle) (*Plugin, error) {
	p := &Plugin{
		name: c.Name, handle: handle, rules: packing.NewRules(c.Model), ranker: c.Ranker, candidates: *c.Args.CandidateNodes,
		ledger: c.Ledger, pods: handle.SharedInformerFactory().Core().V1().Pods().Lister(),
	}
	p.podInfos = newPodInfos(p.isCached, c.Affinity)
	p.bestFit = p.packerFor(&packing.Demand{})
	p.fleet = newFleet(p.bestFit)
	p.fleet.narrows.Store(p.candidates > 0) // until the first cycle counts the nodes
	registerMetrics()
	if err := p.watchPods(); err != nil {
		return nil, fmt.Errorf("watch pods: %w", err)
	}
	klog.FromContext(ctx).V(2).Info("Packing plugin ready", "plugin", c.Name, "model", c.Model, "candidateNodes", p.candidates)
	return p, nil
}

// Name returns the plugin's name in the scheduler configuration.
func (p *Plugin) Name() string { return p.name }

func (p *Plugin) packerFor(d *packing.Demand) packing.Packer {
	return packing.Packer{Rules: p.rules, Ranker: p.ranker(d)}
}

// isCached reports whether the informer's cache has the pod. The informer removes a pod from the cache before it calls handlers, so for a
// pod that is still there the deletion handler is yet to be called, and will remove whatever state is kept for the pod.
func (p *Plugin) isCached(pod *v1.Pod) bool { return p.isCachedUID(pod.Namespace, pod.Name, pod.UID) }

func (p *Plugin) isCachedUID(namespace, name string, uid types.UID) bool {
	known, err := p.pods.Pods(namespace).Get(name)
	return err == nil && known.UID == uid
}

// watchPods registers a handler that removes the state kept for a pod when the pod is deleted or has ended. This only saves memory: the
// placement of a pod that is in no NodeInfo counts in Reserve alone, and a pod that is refused there is tried again.
func (p *Plugin) watchPods() error {
	_, err := p.handle.SharedInformerFactory().Core().V1().Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		DeleteFunc: func(obj any) {
			if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = gone.Obj
			}
			if pod, ok := obj.(*v1.Pod); ok {
				p.ledger.Forget(pod.UID)
				p.podInfos.forget(pod.UID)
				p.breadths.remove(pod.UID)
			}
		},
	})
	return err
}

// signature is the fragment that SignPod returns: everything that Filter and Score read of a pod, and the epoch of the node ranks.
type signature struct {
	Pod   string `json:"pod"`
	Epoch int64  `json:"epoch"`
}

// SignPod returns a signature with which the scheduler reuses a pod's scores for the next pod that is equal to it. Pods with soft
// constraints get none, because their node depends on other nodes. Nor does any pod while nodes are narrowed: a batch of equal pods sees
// only the candidates of the first, and once pods have been placed on those, a node that was left out may be better. The scheduling queue
// calls SignPod from its own goroutines, before PreFilter.
func (p *Plugin) SignPod(_ context.Context, pod *v1.Pod) ([]fwk.SignFragment, *fwk.Status) {
	doc := p.podInfos.get(pod)
	if doc.RequestErr != nil || doc.Placed || hasPreferences(pod) || p.fleet.narrows.Load() {
		return nil, fwk.NewStatus(fwk.Unschedulable, "not signed")
	}
	return []fwk.SignFragment{{Key: "gshare.dev/" + p.name, Value: signature{Pod: doc.key, Epoch: p.fleet.epoch.Load()}}}, nil
}

// Values of the label nodes: how a scheduling cycle chose the nodes to filter.
const (
	narrowed      = "narrowed"       // the best node or the best candidates only
	narrowedRetry = "narrowed_retry" // the best candidates, in a further cycle, because other plugins refused the best node
	wideByChoice  = "wide"           // all nodes: there are few, the pod has preferences, or narrowing is switched off
	wideForNone   = "wide_no_fit"    // all nodes, because none fits: for the event and for preemption
	wideRetry     = "wide_retry"     // all nodes, in a further cycle, because other plugins refused every candidate
)

// Values of the label result of binds.
const (
	wasBound  = "bound"
	notBound  = "not_bound"
	ambiguous = "ambiguous" // the answer to an attempt was lost; it is made again
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
