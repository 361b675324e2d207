package sharing

import (
	"context"
	"strings"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/gshare-dev/gshare/plugins/ledger"
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
