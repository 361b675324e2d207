// Package sharing implements the extension points of the packing plugins: it reads pods and nodes, lets vgpu/packing decide, and writes
// the placement to the API server. It does no GPU arithmetic of its own.
package sharing

import (
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"

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
	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/kube/nodeview"
	"github.com/gshare-dev/gshare/vgpu/packing"
	"github.com/gshare-dev/gshare/vgpu/residency"
	"github.com/gshare-dev/gshare/vgpu/share"
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

// fleet holds the nodes of the scheduler's snapshot: the shares on each node at its NodeInfo generation, the ranks of nodes for pods with equal requests,
// and the mix of pods in the cluster for which the ranks are computed. Only the scheduling goroutine changes it, in PreFilter; Filter and Score read it in
// parallel afterwards. Simulations of pod groups must not use it, because they change NodeInfos without giving them a new generation.
type fleet struct {
	ranks       *packing.Fleet // the version of a node is the generation of the last change on which ranks depend
	packer      packing.Packer
	index       map[string]int
	names       []string
	infos       []fwk.NodeInfo // as of the last cycle
	generations []int64        // for each node, the generation of the NodeInfo that is counted
	facts       []nodeFacts
	untrusted   []error
	mix         packing.Mix
	total       packing.Capacity
	frozen      packing.Epoch

	// The fields below are also read by SignPod, on goroutines of the scheduling queue.
	epoch   atomic.Int64 // counts the demands frozen so far
	narrows atomic.Bool  // whether there are more nodes than candidates
}

// nodeFacts holds what one node contributes to the totals of the cluster: the shapes (request sizes) of its pods and its capacity.
type nodeFacts struct {
	shapes   []packing.Shape
	capacity packing.Capacity // its models are those of the node's slices
}

func newFleet(packer packing.Packer) *fleet {
	return &fleet{packer: packer, ranks: packing.NewFleet(packer, 0), index: map[string]int{}}
}

// syncFleet updates the fleet to the scheduler's snapshot. Only nodes whose generation has changed are derived again.
func (p *Plugin) syncFleet(nodes []fwk.NodeInfo) {
	f := p.fleet
	if !f.sameNodes(nodes) {
		f.reset(nodes)
		p.pruneReported()
		p.inventories.clear()
	}
	f.narrows.Store(p.candidates > 0 && len(nodes) > p.candidates)
	for i, info := range nodes {
		if generation := info.GetGeneration(); f.generations[i] != generation {
			node, err := p.deriveNode(info, "", nil)
			f.set(i, node, generation, err, p.nodeFactsOf(info, node))
		}
	}
	if f.frozen.Expired(&f.mix, f.total) {
		f.startEpoch(p)
	}
}

// sameNodes reports whether these are the nodes of the last cycle, in the same order. A node normally keeps its NodeInfo from one snapshot to the
// next, so names are compared only if the NodeInfo is another one.
func (f *fleet) sameNodes(nodes []fwk.NodeInfo) bool {
	if len(nodes) != len(f.infos) {
		return false
	}
	for i, info := range nodes {
		if info == f.infos[i] {
			continue
		}
		if info.Node().Name != f.names[i] {
			return false
		}
		f.infos[i] = info
	}
	return true
}

// reset replaces the list of nodes. It keeps the occupancy of nodes that remain; all ranks are computed again.
func (f *fleet) reset(nodes []fwk.NodeInfo) {
	n := len(nodes)
	ranks, index, facts, untrusted, generations := f.ranks, f.index, f.facts, f.untrusted, f.generations
	f.ranks = packing.NewFleet(f.packer, n)
	f.index, f.names = make(map[string]int, n), make([]string, n)
	f.facts, f.untrusted, f.generations = make([]nodeFacts, n), make([]error, n), make([]int64, n)
	f.infos = slices.Clone(nodes)
	f.mix, f.total = packing.Mix{}, packing.Capacity{Models: map[string]packing.MilliGPU{}}
	for i, info := range nodes {
		name := info.Node().Name
		f.names[i], f.index[name] = name, i
		if old, ok := index[name]; ok && ranks.Version(old) != 0 {
			f.set(i, ranks.Node(old), generations[old], untrusted[old], facts[old])
		}
	}
}

// set replaces node i. The ranks of the node remain valid if nothing has changed on which a rank depends, as when an assumed pod is confirmed.
func (f *fleet) set(i int, node *packing.Node, generation int64, err error, facts nodeFacts) {
	f.count(f.facts[i], -1)
	f.facts[i], f.untrusted[i], f.generations[i] = facts, err, generation
	f.count(facts, 1)
	if err != nil {
		node = packing.NewNode(node.Name, nil, node.CPU, node.RAM) // ranked as a node without GPUs, so that it never serves a share
	}
	if old := f.ranks.Node(i); old == nil || !old.Equals(node) {
		f.ranks.Set(i, node, generation)
	}
}

func (f *fleet) count(facts nodeFacts, sign int) {
	for _, s := range facts.shapes {
		f.mix.Add(s, sign)
	}
	f.total.Add(facts.capacity, sign)
}

// nodeFactsOf returns the request shapes of the pods on the node, and the node's capacity.
func (p *Plugin) nodeFactsOf(info fwk.NodeInfo, node *packing.Node) nodeFacts {
	facts := nodeFacts{capacity: packing.CapacityOf(node, packing.MilliCPU(info.GetAllocatable().GetMilliCPU()))}
	for _, pi := range info.GetPods() {
		if doc := p.podInfos.get(pi.GetPod()); doc.Asks && doc.RequestErr == nil {
			facts.shapes = append(facts.shapes, doc.shape)
		}
	}
	return facts
}

// startEpoch freezes the mix of pods that runs now. The ranks of nodes are computed for that mix until it has changed enough for a new
// epoch.
func (f *fleet) startEpoch(p *Plugin) {
	f.frozen = packing.NewEpoch(&f.mix, f.total)
	f.packer = p.packerFor(packing.NewDemand(&f.mix, f.total))
	f.ranks.SetPacker(f.packer)
	f.epoch.Add(1)
}

// indexOf returns the node's index, and whether the fleet has counted this generation of the NodeInfo.
func (f *fleet) indexOf(info fwk.NodeInfo) (int, bool) {
	i, ok := f.index[info.Node().Name]
	return i, ok && f.generations[i] == info.GetGeneration()
}

// inventories caches the decoded slices of each node until its inventory annotation changes: occupancy is derived whenever a pod is added
// or deleted, while GPUs hardly ever change.
type inventories struct{ byNode sync.Map }

type knownInventory struct {
	text   string
	there  bool // whether the node has the annotation: an empty one is malformed, but a node without one does not run gshare
	slices []packing.Slice
	err    error
}

// slicesOf returns the slices in the node's inventory, or an error if the inventory is malformed. The caller must not modify the slices.
func (i *inventories) slicesOf(node *v1.Node) ([]packing.Slice, error) {
	text, there := node.Annotations[kube.AnnotationInventory]
	if last, ok := i.byNode.Load(node.Name); ok {
		if known := last.(*knownInventory); known.text == text && known.there == there {
			return known.slices, known.err
		}
	}
	decoded, _, err := kube.InventoryOf(node)
	fresh := &knownInventory{text: text, there: there, slices: nodeview.Slices(decoded), err: err}
	i.byNode.Store(node.Name, fresh)
	return fresh.slices, fresh.err
}

// clear removes all entries, so that those of deleted nodes do not stay for ever.
func (i *inventories) clear() { i.byNode.Clear() }

// deriveNode returns the node with the shares on its slices. It computes them from the given NodeInfo alone, so that the result is also right
// for the dry runs of preemption, for nominated pods and for group simulations. The placement of a pod is the one that this process has
// assumed, else the one in its annotation, else the one that the pod would get now. The pod whose UID is except is left out; extra placements
// are added unless their pod is on the node already. The error says why the node is untrusted. deriveNode may be called from any goroutine.
func (p *Plugin) deriveNode(info fwk.NodeInfo, except types.UID, extra []ledger.Assumed) (*packing.Node, error) {
	slices, err := p.inventories.slicesOf(info.Node())
	if err != nil {
		p.reportInventory(info.Node(), err)
		return emptyNode(info, nil), nodeview.ErrInventory
	}
	d := &nodeview.OccupancyBuilder{Node: emptyNode(info, slices), Packer: p.bestFit, PodRequest: p.podInfos.requestOf}
	p.addPods(d, info, except)
	addExtra(d, extra, except)
	return d.Node, d.Build()
}

func emptyNode(info fwk.NodeInfo, slices []packing.Slice) *packing.Node {
	has, used := info.GetAllocatable(), info.GetRequested()
	return packing.NewNode(info.Node().Name, slices,
		packing.MilliCPU(has.GetMilliCPU()-used.GetMilliCPU()), share.Bytes(has.GetMemory()-used.GetMemory()))
}

func (p *Plugin) addPods(d *nodeview.OccupancyBuilder, info fwk.NodeInfo, except types.UID) {
	for _, pi := range info.GetPods() {
		pod := pi.GetPod()
		if pod.UID == except {
			continue
		}
		if assumed, ok := p.ledger.Get(pod.UID); ok && assumed.Node == info.Node().Name {
			level, kept := p.levelOf(pod)
			d.AddPlacement(nodeview.Occupant{
				Pod: pod, Tenant: pod.Namespace, Workload: assumed.Workload, Placement: assumed.Placement, Level: level, Kept: kept,
			})
			continue
		}
		d.AddPod(pod)
	}
}

// levelOf returns the level at which a pod with an assumed placement counts, and what the pod keeps if that level is Warm. The pod counts as
// Hot until the API server shows the placement, because its agent reports nothing about it before.
func (p *Plugin) levelOf(pod *v1.Pod) (level residency.Level, kept share.Bytes) {
	if said := p.podInfos.get(pod); said.Placed {
		return said.Level, said.Kept
	}
	return residency.Hot, 0
}

// addExtra adds assumed placements of pods that the NodeInfo does not show yet, such as other pods of the same group. It leaves out the
// placement of the pod whose UID is except.
func addExtra(d *nodeview.OccupancyBuilder, extra []ledger.Assumed, except types.UID) {
	for _, p := range extra {
		known := slices.ContainsFunc(d.Occupants(), func(o nodeview.Occupant) bool { return o.Placement.UID == p.UID })
		if !known && p.UID != except {
			d.AddPlacement(nodeview.Occupant{Tenant: p.Tenant, Workload: p.Workload, Placement: p.Placement, Level: residency.Hot})
		}
	}
}

// PreScore skips scoring for pods with soft constraints, because the scores of the other plugins are to choose their node.
func (p *Plugin) PreScore(_ context.Context, state fwk.CycleState, _ *v1.Pod, _ []fwk.NodeInfo) *fwk.Status {
	c, status := p.cycleOf(state)
	if status == nil && !c.ranksNodes {
		return fwk.NewStatus(fwk.Skip)
	}
	return status
}

// Score returns the negated rank of the node for the pod, because a better node must have a higher score. NormalizeScore maps it to the
// framework's range.
func (p *Plugin) Score(_ context.Context, state fwk.CycleState, _ *v1.Pod, info fwk.NodeInfo) (int64, *fwk.Status) {
	c, status := p.cycleOf(state)
	if status != nil {
		return 0, status
	}
	rank, refused := p.evaluateNode(c, info)
	if refused != nil {
		return math.MinInt64, nil
	}
	return -int64(rank), nil
}

// ScoreExtensions implements fwk.ScorePlugin; the plugin normalizes its own scores.
func (p *Plugin) ScoreExtensions() fwk.ScoreExtensions { return p }

// NormalizeScore sets the score of the best node to 100, of the next to 99, and so on. With integer scores, random choices between ties
// would cost several points of allocation; distinct scores, with a weight above that of all other plugins together, make the choice exact
// and repeatable. NormalizeScore depends on the scores alone, so that the framework may call it with scores of an earlier cycle.
func (p *Plugin) NormalizeScore(_ context.Context, _ fwk.CycleState, _ *v1.Pod, scores fwk.NodeScoreList) *fwk.Status {
	order := make([]int, len(scores))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(scores[b].Score, scores[a].Score), cmp.Compare(scores[a].Name, scores[b].Name))
	})
	for place, i := range order {
		scores[i].Score = max(fwk.MinScore, fwk.MaxScore-int64(place))
	}
	return nil
}

// EventsToRegister returns the cluster events that can make a refused pod schedulable. A queueing hint that is in doubt queues the pod: a
// needless retry costs one cycle, but a missed one costs minutes of waiting.
func (p *Plugin) EventsToRegister(context.Context) ([]fwk.ClusterEventWithHint, error) {
	return []fwk.ClusterEventWithHint{
		// A pod that held a share is gone or has ended.
		{Event: fwk.ClusterEvent{Resource: fwk.AssignedPod, ActionType: fwk.Delete}, QueueingHintFn: p.hintPodDeleted},
		// A malformed placement was fixed, a valid one changed, or an instance of a function gave up SM-time.
		{Event: fwk.ClusterEvent{Resource: fwk.AssignedPod, ActionType: fwk.Update}, QueueingHintFn: p.hintPodUpdated},
		// A node was added, or its inventory changed: more slices, or slices that are healthy again.
		{Event: fwk.ClusterEvent{Resource: fwk.Node, ActionType: fwk.Add | fwk.UpdateNodeAnnotation}, QueueingHintFn: p.hintInventoryChanged},
		// The pod itself was corrected, for example in its annotations.
		{Event: fwk.ClusterEvent{Resource: fwk.TargetPod, ActionType: fwk.Update}},
	}, nil
}

// hintPodDeleted is the queueing hint for a deleted pod: it queues the waiting pod if the deleted one may have held a share.
func (p *Plugin) hintPodDeleted(_ klog.Logger, _ *v1.Pod, oldObj, _ any) (fwk.QueueingHint, error) {
	if gone, ok := oldObj.(*v1.Pod); ok && !kube.RequestsShare(gone) {
		return fwk.QueueSkip, nil
	}
	return fwk.Queue, nil
}

// hintPodUpdated is the queueing hint for an updated pod: it queues the waiting pod if the placement annotation of the updated one changed,
// or if the updated one counts at a lower level than before.
func (p *Plugin) hintPodUpdated(_ klog.Logger, _ *v1.Pod, oldObj, newObj any) (fwk.QueueingHint, error) {
	before, wasPod := oldObj.(*v1.Pod)
	after, isPod := newObj.(*v1.Pod)
	if wasPod && isPod && before.Annotations[kube.AnnotationPlacement] == after.Annotations[kube.AnnotationPlacement] && !isLowered(before, after) {
		return fwk.QueueSkip, nil
	}
	return fwk.Queue, nil
}

// isLowered reports whether a pod counts at a lower level after an update. It decodes only pods whose residency changed, because it is
// called for each waiting pod at each update of a pod.
func isLowered(before, after *v1.Pod) bool {
	equal := func(key string) bool { return before.Annotations[key] == after.Annotations[key] }
	if equal(kube.AnnotationResidency) && equal(kube.AnnotationResidencyReached) {
		return false
	}
	return kube.LevelOf(after) < kube.LevelOf(before)
}

// hintInventoryChanged is the queueing hint for nodes: it queues the waiting pod if a node is new or its inventory annotation changed.
func (p *Plugin) hintInventoryChanged(_ klog.Logger, _ *v1.Pod, oldObj, newObj any) (fwk.QueueingHint, error) {
	before, isUpdate := oldObj.(*v1.Node)
	after, ok := newObj.(*v1.Node)
	if ok && isUpdate && before != nil && before.Annotations[kube.AnnotationInventory] == after.Annotations[kube.AnnotationInventory] {
		return fwk.QueueSkip, nil
	}
	return fwk.Queue, nil
}

// reportedErrors holds, for each node, a digest of the last faulty inventory that an event has reported.
type reportedErrors struct{ byNode sync.Map }

// reportInventory records a Warning event on the node about the error of its inventory, once for each version of the inventory.
func (p *Plugin) reportInventory(node *v1.Node, err error) {
	now := sha256.Sum256([]byte(string(node.UID) + "/" + node.Annotations[kube.AnnotationInventory]))
	if before, told := p.reportedErrors.byNode.Swap(node.Name, now); !told || before != now {
		p.handle.EventRecorder().Eventf(node, nil, v1.EventTypeWarning, eventMalformed, "Scheduling",
			"profile %s places no pod here: %v", p.handle.ProfileName(), err)
	}
}

// pruneReported forgets the reported errors of nodes that no longer exist.
func (p *Plugin) pruneReported() {
	p.reportedErrors.byNode.Range(func(name, _ any) bool {
		if _, here := p.fleet.index[name.(string)]; !here {
			p.reportedErrors.byNode.Delete(name)
		}
		return true
	})
}
