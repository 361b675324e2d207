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
