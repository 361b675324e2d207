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

// PreFilter reads the share once. A pod whose share makes no sense is refused here, with the reason as its event. For other
// pods it names the best nodes, if that leaves any out.
func (p *Plugin) PreFilter(_ context.Context, state fwk.CycleState, pod *v1.Pod, nodes []fwk.NodeInfo) (*fwk.PreFilterResult, *fwk.Status) {
	doc := p.dossiers.of(pod)
	if doc.RequestErr != nil {
		refusals.WithLabelValues(p.name, badShare).Inc()
		return nil, fwk.NewStatus(fwk.UnschedulableAndUnresolvable, readable(doc.RequestErr))
	}
	if doc.Placed || doc.PlaceErr != nil {
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

// PreFilterExtensions implements fwk.PreFilterPlugin. There is no state to keep up: Filter reads the pods of the NodeInfo
// it is given.
func (p *Plugin) PreFilterExtensions() fwk.PreFilterExtensions { return nil }

// narrow names the candidates: the best nodes for the pod among those that pass the cheap checks. Whatever is left out ranks
// lower, so a survivor among them makes the winner the best of all nodes. With no candidate the pod is filtered
// everywhere, so that its event says why and preemption can act.
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

// readable gives the reason for an event. The scheduler uses it as a format string, which would garble every percent sign,
// those of the user's text included; the wide form of the sign is left alone.
func readable(err error) string { return strings.ReplaceAll(err.Error(), "%", "％") }

// hasPreferences says that the pod states a preference between nodes. Then the scores of the other plugins decide; where
// the packing order rules, they could not.
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
