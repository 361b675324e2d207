package sharing

import (
	"sync/atomic"

	fwk "k8s.io/kube-scheduler/framework"

	"github.com/gshare-dev/gshare/vgpu/packing"
)

// fleet follows the scheduler's snapshot: the occupancy of each node as of its NodeInfo generation, the ranks of nodes for
// each kind of pod, and the mix of pods that the ranks are for. Only the scheduling goroutine changes it, in PreFilter;
// Filter and Score read it in parallel afterwards. Group simulations must not use it: they change NodeInfos without a new
// generation.
type fleet struct {
	ranks  *packing.Fleet
	packer packing.Packer
	index  map[string]int
	names  []string
	facts  []nodeFacts
	doubts []error
	mix    packing.Mix
	total  packing.Capacity
	frozen packing.Epoch

	// What follows is read by SignPod too, on goroutines of the queue.
	epoch   atomic.Int64 // counts the demands frozen so far
	narrows atomic.Bool  // whether there are more nodes than candidates
}

// nodeFacts is what one node adds to the cluster's mix and capacity.
type nodeFacts struct {
	shapes   []packing.Shape
	capacity packing.Capacity // its models are those of the slices
}

func newFleet(packer packing.Packer) *fleet {
	return &fleet{packer: packer, ranks: packing.NewFleet(packer, 0), index: map[string]int{}}
}

// sync brings the fleet up to the snapshot; it derives only nodes whose generation changed.
func (p *Plugin) sync(nodes []fwk.NodeInfo) {
	f := p.fleet
	if !f.sameNodes(nodes) {
		f.reset(nodes)
		p.forgetComplaints()
		p.inventories.forget()
	}
	f.narrows.Store(p.candidates > 0 && len(nodes) > p.candidates)
	for i, info := range nodes {
		if f.ranks.Version(i) != info.GetGeneration() {
			node, doubt := p.derive(info, "", nil)
			f.set(i, node, info.GetGeneration(), doubt, p.factsOf(info, node))
		}
	}
	if f.frozen.Expired(&f.mix, f.total) {
		f.freeze(p)
	}
}

func (f *fleet) sameNodes(nodes []fwk.NodeInfo) bool {
	if len(nodes) != len(f.names) {
		return false
	}
	for i, info := range nodes {
		if info.Node().Name != f.names[i] {
			return false
		}
	}
	return true
}

// reset starts over for another list of nodes. Of the nodes that were there before it keeps what it knows; the ranks are
// computed anew.
func (f *fleet) reset(nodes []fwk.NodeInfo) {
	n := len(nodes)
	ranks, index, facts, doubts := f.ranks, f.index, f.facts, f.doubts
	f.ranks = packing.NewFleet(f.packer, n)
	f.index, f.names = make(map[string]int, n), make([]string, n)
	f.facts, f.doubts = make([]nodeFacts, n), make([]error, n)
	f.mix, f.total = packing.Mix{}, packing.Capacity{Models: map[string]packing.MilliGPU{}}
	for i, info := range nodes {
		name := info.Node().Name
		f.names[i], f.index[name] = name, i
		if old, ok := index[name]; ok && ranks.Version(old) != 0 {
			f.set(i, ranks.Node(old), ranks.Version(old), doubts[old], facts[old])
		}
	}
}

func (f *fleet) set(i int, node *packing.Node, version int64, doubt error, facts nodeFacts) {
	f.count(f.facts[i], -1)
	f.facts[i], f.doubts[i] = facts, doubt
	f.count(facts, 1)
	if doubt != nil {
		node = packing.NewNode(node.Name, nil, node.CPU, node.RAM) // ranks as a node without GPUs: it never serves a share
	}
	f.ranks.Set(i, node, version)
}

func (f *fleet) count(facts nodeFacts, sign int) {
	for _, s := range facts.shapes {
		f.mix.Add(s, sign)
	}
	f.total.Add(facts.capacity, sign)
}

// factsOf counts the node's pods by shape, and what the node has.
func (p *Plugin) factsOf(info fwk.NodeInfo, node *packing.Node) nodeFacts {
	facts := nodeFacts{capacity: packing.CapacityOf(node, packing.MilliCPU(info.GetAllocatable().GetMilliCPU()))}
	for _, pi := range info.GetPods() {
		if doc := p.dossiers.of(pi.GetPod()); doc.Asks && doc.RequestErr == nil {
			facts.shapes = append(facts.shapes, doc.shape)
		}
	}
	return facts
}

// freeze makes a new demand of what runs now. It forgets all ranks.
func (f *fleet) freeze(p *Plugin) {
	f.frozen = packing.NewEpoch(&f.mix, f.total)
	f.packer = p.packerFor(packing.NewDemand(&f.mix, f.total))
	f.ranks.SetPacker(f.packer)
	f.epoch.Add(1)
}

// at finds the node by its index, if the fleet has it as of exactly this NodeInfo.
func (f *fleet) at(info fwk.NodeInfo) (int, bool) {
	i, ok := f.index[info.Node().Name]
	return i, ok && f.ranks.Version(i) == info.GetGeneration()
}
