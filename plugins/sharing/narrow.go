package sharing

import (
	"context"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/gshare-dev/gshare/vgpu/packing"
)

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
