package sharing

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/gshare-dev/gshare/plugins/ledger"
	"github.com/gshare-dev/gshare/vgpu/kube/nodeview"
	"github.com/gshare-dev/gshare/vgpu/packing"
	"github.com/gshare-dev/gshare/vgpu/residency"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// deriveNode returns the node with the shares on its slices, computed from the given NodeInfo alone, so that preemption dry runs, nominated
// pods and group simulations are right. Each pod has the placement that this process assumed, else that of its annotation, else the one
// that it would get now. The pod with UID except is left out; extra placements are added unless their pod is on the node already. The error
// is why the node is untrusted. deriveNode may be called from any goroutine.
func (p *Plugin) deriveNode(info fwk.NodeInfo, except types.UID, extra []ledger.Assumed) (*packing.Node, error) {
	slices, err := p.inventories.slicesOf(info.Node())
	if err != nil {
		return emptyNode(info, nil), p.reportInventory(info.Node(), err)
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

// levelOf returns the level at which a pod with an assumed placement counts, and what it keeps if that is Warm: Hot until the API server shows
// the placement, as its agent reports nothing of it before.
func (p *Plugin) levelOf(pod *v1.Pod) (level residency.Level, kept share.Bytes) {
	if said := p.podInfos.get(pod); said.Placed {
		return said.Level, said.Kept
	}
	return residency.Hot, 0
}

// addExtra adds assumed placements of pods that the NodeInfo does not show yet, such as pods of the same group, except that of the given
// pod.
func addExtra(d *nodeview.OccupancyBuilder, extra []ledger.Assumed, except types.UID) {
	for _, p := range extra {
		known := slices.ContainsFunc(d.Occupants(), func(o nodeview.Occupant) bool { return o.Placement.UID == p.UID })
		if !known && p.UID != except {
			d.AddPlacement(nodeview.Occupant{Tenant: p.Tenant, Workload: p.Workload, Placement: p.Placement, Level: residency.Hot})
		}
	}
}
