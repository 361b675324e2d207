package sharing

import (
	"cmp"
	"errors"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/gshare-dev/gshare/plugins/ledger"
	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/packing"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// The reasons for which a node is not trusted. Nothing is placed on it until they are gone.
var (
	errInventory  = errors.New("gshare inventory is malformed")
	errPlacement  = errors.New("a pod's gshare placement is malformed")
	errUnknownUse = errors.New("a pod uses gshare GPUs without a placement")
	errNominated  = errors.New("GPUs are kept for a nominated pod")
)

// derive tells what the node's slices hold, from the NodeInfo at hand and nothing else, so that preemption dry runs,
// nominated pods and group simulations come out right. Each pod counts by the placement this process gave it, else by its
// annotation, else by the placement it would get. The pod with UID except is left out; extra placements are added unless
// their pod is on the node already. It may be called from any goroutine.
func (p *Plugin) derive(info fwk.NodeInfo, except types.UID, extra []ledger.Promise) (*packing.Node, error) {
	slices, err := p.inventories.of(info.Node())
	if err != nil {
		p.complain(info.Node(), err)
		return emptyNode(info, nil), errInventory
	}
	d := &derivation{plugin: p, node: emptyNode(info, slices)}
	d.readPods(info, except)
	d.addExtra(extra, except)
	return d.node, cmp.Or(d.err, d.placeVirtually())
}

func emptyNode(info fwk.NodeInfo, slices []packing.Slice) *packing.Node {
	has, used := info.GetAllocatable(), info.GetRequested()
	return packing.NewNode(info.Node().Name, slices,
		packing.MilliCPU(has.GetMilliCPU()-used.GetMilliCPU()), share.Bytes(has.GetMemory()-used.GetMemory()))
}

// derivation collects a node's occupancy.
type derivation struct {
	plugin  *Plugin
	node    *packing.Node
	placed  []placedPod
	virtual []*v1.Pod // ask for GPUs, but nobody has placed them
	err     error
}

type placedPod struct {
	pod       *v1.Pod // nil for a promise whose pod is not on the node yet
	tenant    string
	workload  string
	placement kube.Placement
}

func (d *derivation) readPods(info fwk.NodeInfo, except types.UID) {
	for _, pi := range info.GetPods() {
		pod := pi.GetPod()
		if pod.UID == except {
			continue
		}
		if promised, ok := d.plugin.ledger.Get(pod.UID); ok && promised.Node == info.Node().Name {
			d.placed = append(d.placed, placedPod{pod, pod.Namespace, promised.Workload, promised.Placement})
			continue
		}
		d.readPod(pod, info.Node().Name)
	}
}

// readPod takes a placement only from a bound pod that asks for GPUs: anybody might have written it on another.
func (d *derivation) readPod(pod *v1.Pod, node string) {
	doc, bound := d.plugin.dossiers.of(pod), pod.Spec.NodeName != ""
	switch {
	case !doc.asks:
	case bound && doc.placed && doc.placeErr == nil && doc.placement.Node == node:
		d.placed = append(d.placed, placedPod{pod, pod.Namespace, doc.pod.Request.Workload, doc.placement})
	case bound && doc.placed:
		d.err = errPlacement
	case doc.requestErr != nil:
		d.err = errUnknownUse
	default:
		d.virtual = append(d.virtual, pod)
	}
}

// addExtra adds promises to pods that the NodeInfo does not show yet: mates committed in the same group cycle.
func (d *derivation) addExtra(extra []ledger.Promise, except types.UID) {
	for _, p := range extra {
		known := slices.ContainsFunc(d.placed, func(q placedPod) bool { return q.placement.UID == p.UID })
		if !known && p.UID != except {
			d.placed = append(d.placed, placedPod{nil, p.Tenant, p.Workload, p.Placement})
		}
	}
}

// placeVirtually loads the placed pods, then gives every other one the place it would get now: first those that run here
// already, then the nominated, each by priority and then by UID. Pods that are nominated wait for lower-priority pods to
// end, so those do not count against them. Where a pod would go must not depend on anything but this node, or Reserve
// could refuse for ever what Filter admits.
func (d *derivation) placeVirtually() error {
	slices.SortFunc(d.virtual, func(a, b *v1.Pod) int {
		return cmp.Or(cmp.Compare(nominated(a), nominated(b)),
			cmp.Compare(priority(b), priority(a)), cmp.Compare(a.UID, b.UID))
	})
	d.load()
	packer := d.plugin.bestFit
	for _, pod := range d.virtual {
		doc := d.plugin.dossiers.of(pod)
		plan, _, refusal := packer.Place(d.node, &doc.pod)
		if refusal != packing.Admitted {
			return doubt(pod)
		}
		d.node.Take(packer.Rules.Model, &doc.pod, plan)
	}
	return nil
}

func nominated(pod *v1.Pod) int {
	if pod.Spec.NodeName == "" {
		return 1
	}
	return 0
}

func doubt(pod *v1.Pod) error {
	if pod.Spec.NodeName == "" {
		return errNominated
	}
	return errUnknownUse
}

func (d *derivation) load() {
	slices.SortFunc(d.placed, func(a, b placedPod) int { return cmp.Compare(a.placement.UID, b.placement.UID) })
	for _, p := range d.placed {
		if p.pod == nil || !d.leavesFor(p.pod) {
			addPlacement(d.node, p.tenant, p.workload, p.placement)
		}
	}
}

// leavesFor says that the pod is ending and makes room for a nominated pod of higher priority. The framework filters once
// more without nominated pods, and there the ending pod counts.
func (d *derivation) leavesFor(pod *v1.Pod) bool {
	return pod.DeletionTimestamp != nil && slices.ContainsFunc(d.virtual, func(v *v1.Pod) bool {
		return v.Spec.NodeName == "" && priority(v) > priority(pod)
	})
}

func priority(pod *v1.Pod) int32 {
	if pod.Spec.Priority == nil {
		return 0
	}
	return *pod.Spec.Priority
}
