package sharing

import (
	"context"
	"errors"
	"strings"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/gshare-dev/gshare/plugins/ledger"
	"github.com/gshare-dev/gshare/vgpu/kube/nodeview"
	"github.com/gshare-dev/gshare/vgpu/packing"
)

const msgPlaced = "gshare.dev/placement is written by the scheduler and may not be set on a pod"

// PreFilter decodes the pod's share once for the whole scheduling cycle. It refuses pods that have an invalid share or a placement
// annotation already, and narrows the nodes for all other pods to the best ones.
func (p *Plugin) PreFilter(_ context.Context, state fwk.CycleState, pod *v1.Pod, nodes []fwk.NodeInfo) (*fwk.PreFilterResult, *fwk.Status) {
	doc := p.podInfos.get(pod)
	if doc.RequestErr != nil {
		refusals.WithLabelValues(p.name, badShare).Inc()
		return nil, fwk.NewStatus(fwk.UnschedulableAndUnresolvable, eventText(doc.RequestErr))
	}
	if doc.Placed || doc.PlacementErr != nil {
		refusals.WithLabelValues(p.name, hasPlaced).Inc()
		return nil, fwk.NewStatus(fwk.UnschedulableAndUnresolvable, msgPlaced)
	}
	c := &cycle{
		pod: &doc.Pod, key: doc.key, hasShare: doc.Asks, isGroup: state.IsPodGroupSchedulingCycle(), ranksNodes: !hasPreferences(pod),
		breadth: allNodes, attempt: ledger.NewCycle(),
	}
	state.Write(p.stateKey(), c)
	if c.isGroup {
		return nil, nil
	}
	p.syncFleet(nodes)
	return p.narrow(c, pod, nodes), nil
}

// PreFilterExtensions implements fwk.PreFilterPlugin. It returns nil because Filter derives everything from the NodeInfo it gets.
func (p *Plugin) PreFilterExtensions() fwk.PreFilterExtensions { return nil }

// eventText returns the text of the error for an event. The scheduler uses it as a format string, which would garble percent signs, so
// these are replaced by their full-width form.
func eventText(err error) string { return strings.ReplaceAll(err.Error(), "%", "％") }

// hasPreferences reports whether the pod has soft constraints: preferred affinity, or topology spread with ScheduleAnyway. For such pods
// the scores of other plugins choose the node; the packing order would outweigh them.
func hasPreferences(pod *v1.Pod) bool {
	for _, c := range pod.Spec.TopologySpreadConstraints {
		if c.WhenUnsatisfiable == v1.ScheduleAnyway {
			return true
		}
	}
	a := pod.Spec.Affinity
	return a != nil && (a.NodeAffinity != nil && len(a.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution) > 0 ||
		a.PodAffinity != nil && len(a.PodAffinity.PreferredDuringSchedulingIgnoredDuringExecution) > 0 ||
		a.PodAntiAffinity != nil && len(a.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution) > 0)
}

// cycle is the state of one scheduling attempt, which PreFilter writes for the later extension points. It is immutable, so parallel dry
// runs may share it.
type cycle struct {
	pod        *packing.Pod
	key        string  // cache key of the ranks of nodes for the pod
	hasShare   bool    // whether the pod requests gshare resources
	isGroup    bool    // whether this is the simulation of a pod group, which must not use the fleet
	breadth    breadth // how many nodes are filtered
	ranksNodes bool    // whether the packing order decides between nodes
	attempt    ledger.Cycle
}

// Clone implements fwk.StateData. It returns the state itself, which is immutable.
func (c *cycle) Clone() fwk.StateData { return c }

func (p *Plugin) stateKey() fwk.StateKey { return fwk.StateKey(p.name) }

// cycleOf returns the state of the scheduling attempt, or an error status if PreFilter did not run.
func (p *Plugin) cycleOf(state fwk.CycleState) (*cycle, *fwk.Status) {
	data, err := state.Read(p.stateKey())
	if err != nil {
		return nil, fwk.AsStatus(err)
	}
	return data.(*cycle), nil
}

// Filter refuses nodes whose slices cannot hold the pod, and nodes whose inventory or placements cannot be trusted.
func (p *Plugin) Filter(ctx context.Context, state fwk.CycleState, pod *v1.Pod, info fwk.NodeInfo) *fwk.Status {
	c, status := p.cycleOf(state)
	if status != nil {
		return status
	}
	if !c.hasShare {
		return nil
	}
	_, status = p.evaluateNode(c, info)
	if log := klog.FromContext(ctx).V(5); log.Enabled() && status != nil {
		log.Info("Refused a node", "pod", klog.KObj(pod), "node", klog.KObj(info.Node()), "reason", status.Message())
	}
	return status
}

// evaluateNode returns the node's rank for the pod, where lower is better, or the status that refuses the node.
func (p *Plugin) evaluateNode(c *cycle, info fwk.NodeInfo) (packing.Rank, *fwk.Status) {
	if i, synced := p.fleet.indexOf(info); synced && !c.isGroup {
		err := p.fleet.untrusted[i]
		if rank, refusal, known := p.fleet.ranks.CachedRank(c.key, i); known && err == nil {
			return rank, refusalStatus(refusal)
		}
		return p.rankNode(c, p.fleet.ranks.Node(i), err)
	}
	node, err := p.deriveNode(info, "", nil) // the NodeInfo differs from the fleet's: nominated pods, a dry run or the simulation of a group
	return p.rankNode(c, node, err)
}

// rankNode returns the rank of the node for the pod, or the status that refuses it. A non-nil err says why the node is untrusted, which
// refuses every pod with a share.
func (p *Plugin) rankNode(c *cycle, node *packing.Node, err error) (packing.Rank, *fwk.Status) {
	if err != nil && c.hasShare {
		return 0, untrustedStatus(err)
	}
	_, rank, refusal := p.fleet.packer.Place(node, c.pod)
	return rank, refusalStatus(refusal)
}

// untrustedStatus returns the status for a node that cannot be trusted. Preemption can help only if the reason is that space is kept for a
// nominated pod.
func untrustedStatus(err error) *fwk.Status {
	if errors.Is(err, nodeview.ErrNominated) {
		return fwk.NewStatus(fwk.Unschedulable, err.Error())
	}
	return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, err.Error())
}

// refusalStatus converts the packer's refusal into a status, whose code tells preemption whether evicting pods can help. It returns nil if
// the pod is admitted.
func refusalStatus(r packing.Refusal) *fwk.Status {
	switch {
	case r == packing.Admitted:
		return nil
	case r.NeverFits():
		return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, r.String())
	}
	return fwk.NewStatus(fwk.Unschedulable, r.String())
}

// breadth says how many nodes a cycle filters. A pod starts at the first value, and goes on to the next one when other plugins have refused all nodes
// at the present one.
type breadth int

const (
	bestNode   breadth = iota // the best of the whole fleet, if other plugins are not expected to refuse the pod there
	candidates                // the best nodes, as many as the profile says
	allNodes
)

// breadths holds, by UID, the least breadth for each pod that was refused. The zero value holds none. It is safe for concurrent use, except for cautious.
type breadths struct {
	m        sync.Map
	cautious int // number of plain pods for which the best node alone is not tried; only the scheduling goroutine uses it
}

// afterRefusal is the number of plain pods for which the best node alone is not tried after other plugins have refused it once. What refused it, such
// as an affinity that a profile adds or an extender, is not known here and may refuse it for the next pod too; and each refusal costs the pod a
// cycle, a backoff and an event.
const afterRefusal = 1000

// mayFilterOne reports whether a plain pod may be filtered on the best node alone. If not, it counts the pod towards cautious.
func (b *breadths) mayFilterOne() bool {
	if b.cautious == 0 {
		return true
	}
	b.cautious--
	return false
}

// of returns the breadth at which to try a pod: bestNode if it was never refused.
func (b *breadths) of(pod types.UID) breadth {
	if at, refused := b.m.Load(pod); refused {
		return at.(breadth)
	}
	return bestNode
}

func (b *breadths) set(pod types.UID, to breadth) { b.m.Store(pod, to) }

func (b *breadths) remove(pod types.UID) { b.m.Delete(pod) }

// narrow returns the nodes that the other plugins are to filter, and sets the breadth of the cycle. It returns the best node for the pod among those
// that pass the cheap checks, or several of the best if other plugins may refuse that one. Every node that is left out ranks lower, so if any of
// these nodes passes all filters, the best of those that do is the best of all nodes. If none passes the checks, narrow returns nil: the pod is
// filtered on all nodes, so that its event has the reasons and preemption can act.
func (p *Plugin) narrow(c *cycle, pod *v1.Pod, nodes []fwk.NodeInfo) *fwk.PreFilterResult {
	least := p.breadths.of(pod.UID)
	if p.candidates == 0 || len(nodes) <= p.candidates || !c.ranksNodes || least == allNodes {
		countCycle(p.name, wideByChoice)
		return nil
	}
	best, breadth := p.choose(c, least, pod, nodes)
	if len(best) == 0 {
		countCycle(p.name, wideForNone)
		return nil
	}
	c.breadth = breadth
	names := sets.New[string]()
	for _, b := range best {
		names.Insert(p.fleet.names[b.Node])
	}
	countCycle(p.name, narrowed)
	return &fwk.PreFilterResult{NodeNames: names}
}

// choose returns the best nodes among those that pass the cheap checks, and the breadth to which they correspond.
func (p *Plugin) choose(c *cycle, least breadth, pod *v1.Pod, nodes []fwk.NodeInfo) ([]packing.Candidate, breadth) {
	check := newPrecheck(pod, c.pod, nodes)
	if least == bestNode && p.isPlain(pod) && p.breadths.mayFilterOne() {
		best := p.best(c, check)
		if len(best) == 0 || check.hasResources(best[0].Node) && len(p.handle.NominatedPodsForNode(p.fleet.names[best[0].Node])) == 0 {
			return best, bestNode
		}
	}
	return p.fleet.ranks.Best(c.key, c.pod, p.candidates, check.passes), candidates
}

// best returns the best node that passes the check, or none. Usually that is the best node of all, which is found without looking at the others.
func (p *Plugin) best(c *cycle, check *precheck) []packing.Candidate {
	best, ok := p.fleet.ranks.BestWithCapacity(c.key, c.pod)
	switch {
	case !ok:
		return nil
	case check.passes(best.Node):
		return []packing.Candidate{best}
	}
	return p.fleet.ranks.Best(c.key, c.pod, 1, check.passes)
}

// isPlain reports whether no stock plugin looks at more of the pod than the prechecks do: the pod has no pod affinity, topology spread, claims,
// storage volumes or host ports, and no pod in the cluster has required anti-affinity that could keep it away. If another plugin refuses the best
// node all the same, the pod is tried again with more nodes, and so are the next pods at once; that is slower, but not wrong.
func (p *Plugin) isPlain(pod *v1.Pod) bool {
	spec := &pod.Spec
	if a := spec.Affinity; a != nil && (a.PodAffinity != nil || a.PodAntiAffinity != nil) {
		return false
	}
	if len(spec.TopologySpreadConstraints) > 0 || len(spec.ResourceClaims) > 0 {
		return false
	}
	for i := range spec.Volumes {
		if v := &spec.Volumes[i]; v.ConfigMap == nil && v.Secret == nil && v.EmptyDir == nil && v.DownwardAPI == nil && v.Projected == nil && v.HostPath == nil {
			return false
		}
	}
	if hasHostPorts(spec.InitContainers) || hasHostPorts(spec.Containers) {
		return false
	}
	repelling, err := p.handle.SnapshotSharedLister().NodeInfos().HavePodsWithRequiredAntiAffinityList()
	return err == nil && len(repelling) == 0
}

func hasHostPorts(containers []v1.Container) bool {
	for i := range containers {
		for _, port := range containers[i].Ports {
			if port.HostPort != 0 {
				return true
			}
		}
	}
	return false
}

// Why a pod is tried again, as the text of an event.
const (
	msgRetryCandidates = "the best node for the GPU share was refused by other conditions; trying the next ones"
	msgRetryAllNodes   = "the best nodes for the GPU share were refused by other conditions; trying all nodes"
)

// PostFilter runs when other plugins have refused every node to which a pod was narrowed. It queues the pod again, to be filtered on more nodes. It
// must run before preemption, which would otherwise evict pods although a node that was left out may have space.
func (p *Plugin) PostFilter(ctx context.Context, state fwk.CycleState, pod *v1.Pod, _ fwk.NodeToStatusReader) (*fwk.PostFilterResult, *fwk.Status) {
	c, status := p.cycleOf(state)
	if status != nil || c.breadth == allNodes {
		return nil, fwk.NewStatus(fwk.Unschedulable)
	}
	next, message, label := allNodes, msgRetryAllNodes, wideRetry
	if c.breadth == bestNode {
		next, message, label = candidates, msgRetryCandidates, narrowedRetry
		p.breadths.cautious = afterRefusal
	}
	p.breadths.set(pod.UID, next)
	if !p.isCached(pod) {
		p.breadths.remove(pod.UID)
	}
	countCycle(p.name, label)
	p.handle.Activate(klog.FromContext(ctx), map[string]*v1.Pod{klog.KObj(pod).String(): pod})
	return nil, fwk.NewStatus(fwk.UnschedulableAndUnresolvable, message) // this code keeps the other PostFilter plugins from running
}
