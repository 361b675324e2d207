package sharing

import (
	"slices"
	"sync"
	"sync/atomic"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/kube/nodeview"
	"github.com/gshare-dev/gshare/vgpu/packing"
)

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
