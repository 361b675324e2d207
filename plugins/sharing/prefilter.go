package sharing

import (
	"context"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/gshare-dev/gshare/plugins/ledger"
)

const msgPlaced = "gshare.dev/placement is written by the scheduler and may not be set on a pod"

// PreFilter reads the pod's share once for the whole cycle. It refuses pods with an invalid share, with the reason for their event,
// and narrows the nodes of others to the best candidates.
func (p *Plugin) PreFilter(_ context.Context, state fwk.CycleState, pod *v1.Pod, nodes []fwk.NodeInfo) (*fwk.PreFilterResult, *fwk.Status) {
	doc := p.podInfos.of(pod)
	if doc.RequestErr != nil {
		refusals.WithLabelValues(p.name, badShare).Inc()
		return nil, fwk.NewStatus(fwk.UnschedulableAndUnresolvable, readable(doc.RequestErr))
	}
	if doc.Placed || doc.PlacementErr != nil {
		refusals.WithLabelValues(p.name, hasPlaced).Inc()
		return nil, fwk.NewStatus(fwk.UnschedulableAndUnresolvable, msgPlaced)
	}
	c := &cycle{
		pod: &doc.Pod, key: doc.key, asks: doc.Asks, group: state.IsPodGroupSchedulingCycle(), ranks: !hasPreferences(pod),
		attempt: ledger.NewCycle(),
	}
	state.Write(p.stateKey(), c)
	if c.group {
		return nil, nil
	}
	p.sync(nodes)
	return p.narrow(c, pod, nodes), nil
}

// PreFilterExtensions implements fwk.PreFilterPlugin. There are none: Filter derives everything from the NodeInfo it gets.
func (p *Plugin) PreFilterExtensions() fwk.PreFilterExtensions { return nil }

// narrow returns the candidates: the best nodes for the pod among those that pass the cheap checks. Every node left out ranks lower, so
// if a candidate passes all filters, the best one is the best of all nodes. Without candidates it returns nil: the pod is filtered on
// all nodes, so that its event has the reasons and preemption can act.
func (p *Plugin) narrow(c *cycle, pod *v1.Pod, nodes []fwk.NodeInfo) *fwk.PreFilterResult {
	if p.candidates == 0 || len(nodes) <= p.candidates || !c.ranks || p.wide.has(pod.UID) {
		countCycle(p.name, wideByChoice)
		return nil
	}
	check := newCheck(pod, c.pod, nodes)
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

// readable returns the error's text for an event. The scheduler uses it as a format string, which would garble percent signs, so they
// are replaced by their full-width form.
func readable(err error) string { return strings.ReplaceAll(err.Error(), "%", "％") }

// hasPreferences reports whether the pod has soft constraints between nodes. Then the scores of other plugins decide, which the
// packing order would outweigh.
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
