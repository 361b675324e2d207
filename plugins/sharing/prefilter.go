package sharing

import (
	"context"
	"strings"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/gshare-dev/gshare/plugins/ledger"
	"github.com/gshare-dev/gshare/vgpu/kube/nodeview"
	"github.com/gshare-dev/gshare/vgpu/packing"
)

const msgPlaced = "gshare.dev/placement is written by the scheduler and may not be set on a pod"

// PreFilter decodes the pod's share once for the whole scheduling cycle. It refuses pods with an invalid share or with a placement
// annotation, and narrows the nodes for other pods to the best candidates.
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
		attempt: ledger.NewCycle(),
	}
	state.Write(p.stateKey(), c)
	if c.isGroup {
		return nil, nil
	}
	p.syncFleet(nodes)
	return p.chooseCandidates(c, pod, nodes), nil
}

// PreFilterExtensions implements fwk.PreFilterPlugin. It returns nil because Filter derives everything from the NodeInfo it gets.
func (p *Plugin) PreFilterExtensions() fwk.PreFilterExtensions { return nil }

// chooseCandidates returns the best nodes for the pod among those that pass the cheap checks. Every node left out ranks lower, so if a
// candidate passes all filters, the best one is the best of all nodes. Without candidates it returns nil: the pod is filtered on all nodes,
// so that its event has the reasons and preemption can act.
func (p *Plugin) chooseCandidates(c *cycle, pod *v1.Pod, nodes []fwk.NodeInfo) *fwk.PreFilterResult {
	if p.candidates == 0 || len(nodes) <= p.candidates || !c.ranksNodes || p.wide.has(pod.UID) {
		countCycle(p.name, wideByChoice)
		return nil
	}
	check := newPrecheck(pod, c.pod, nodes)
	best := p.fleet.ranks.Best(c.key, c.pod, p.candidates, check.passes)
	if len(best) == 0 {
		countCycle(p.name, wideForNone)
		return nil
	}
	names := sets.New[string]()
	for _, b := range best {
		names.Insert(p.fleet.names[b.Node])
	}
	c.narrowed = true
	countCycle(p.name, narrowed)
	return &fwk.PreFilterResult{NodeNames: names}
}

// eventText returns the error's text for an event. The scheduler uses it as a format string, which would garble percent signs, so they are
// replaced by their full-width form.
func eventText(err error) string { return strings.ReplaceAll(err.Error(), "%", "％") }

// hasPreferences reports whether the pod has soft constraints: preferred affinity, or topology spread with ScheduleAnyway. The scores of
// other plugins then choose the node; otherwise the packing order would outweigh them.
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

// precheck tests a pod against the Kubernetes conditions that are cheap to test, so that nodes that the stock filters would refuse are not
// chosen as candidates. The stock filters still run and decide.
type precheck struct {
	eligibility nodeview.EligibilityCheck
	pod         *packing.Pod
	nodes       []fwk.NodeInfo
}

func newPrecheck(spec *v1.Pod, pod *packing.Pod, nodes []fwk.NodeInfo) *precheck {
	return &precheck{eligibility: nodeview.NewEligibilityCheck(spec), pod: pod, nodes: nodes}
}

// passes reports whether the pod may fit the i-th node by CPU, memory, number of pods, taints and affinity.
func (c *precheck) passes(i int) bool {
	info := c.nodes[i]
	has, used := info.GetAllocatable(), info.GetRequested()
	if lacks(int64(c.pod.CPU), has.GetMilliCPU()-used.GetMilliCPU()) || lacks(int64(c.pod.RAM), has.GetMemory()-used.GetMemory()) ||
		len(info.GetPods()) >= has.GetAllowedPodNumber() {
		return false
	}
	eligibility, _ := c.eligibility.Check(info.Node())
	return eligibility == nodeview.Eligible
}

// lacks reports whether less of a resource is free than the pod requests. A pod that requests none lacks none, even on an overcommitted
// node.
func lacks(wanted, free int64) bool { return wanted > 0 && wanted > free }

// cycle is the state of one scheduling attempt, which PreFilter writes for the later extension points. It is immutable, so that parallel
// dry runs may share it.
type cycle struct {
	pod        *packing.Pod
	key        string // cache key of the ranks of nodes for the pod
	hasShare   bool   // whether the pod requests gshare resources
	isGroup    bool   // simulation for a pod group, which must not use the fleet
	narrowed   bool   // whether nodes were left out
	ranksNodes bool   // whether the packing order decides between nodes
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

// uidSet is a concurrent set of pod UIDs. The zero value is empty.
type uidSet struct{ m sync.Map }

func (s *uidSet) add(key types.UID) (added bool) {
	_, loaded := s.m.LoadOrStore(key, struct{}{})
	return !loaded
}

func (s *uidSet) has(key types.UID) bool {
	_, ok := s.m.Load(key)
	return ok
}

func (s *uidSet) remove(key types.UID) { s.m.Delete(key) }
