package sharing

import (
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
	frozen frozen
	epoch  int64
}

// nodeFacts is what one node adds to the cluster's mix and capacity.
type nodeFacts struct {
	shapes   []packing.Shape
	capacity packing.Capacity // its models are those of the slices
}

// frozen is the state of the cluster for which the current demand was made.
type frozen struct {
	pods    int
	freeGPU packing.MilliGPU
	gpu     packing.MilliGPU
}

func newFleet(packer packing.Packer) *fleet {
	return &fleet{packer: packer, ranks: packing.NewFleet(packer, 0), index: map[string]int{}}
}

// sync brings the fleet up to the snapshot; it derives only nodes whose generation changed.
func (p *Plugin) sync(nodes []fwk.NodeInfo) {
	f := p.fleet
	if !f.sameNodes(nodes) {
		f.reset(nodes)
	}
	for i, info := range nodes {
		if f.ranks.Version(i) != info.GetGeneration() {
			node, doubt := p.derive(info, f.packer, "", nil)
			f.set(i, node, info.GetGeneration(), doubt, p.factsOf(info, node))
		}
	}
	if f.stale() {
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

// reset starts over for another list of nodes. Nodes come and go rarely; what it costs is one derivation of every node.
func (f *fleet) reset(nodes []fwk.NodeInfo) {
	n := len(nodes)
	f.ranks = packing.NewFleet(f.packer, n)
	f.index, f.names = make(map[string]int, n), make([]string, n)
	f.facts, f.doubts = make([]nodeFacts, n), make([]error, n)
	f.mix, f.total = packing.Mix{}, packing.Capacity{Models: map[string]packing.MilliGPU{}}
	for i, info := range nodes {
		f.names[i] = info.Node().Name
		f.index[f.names[i]] = i
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
		if doc := p.dossiers.of(pi.GetPod()); doc.asks && doc.requestErr == nil {
			facts.shapes = append(facts.shapes, packing.ShapeOf(&doc.pod))
		}
	}
	return facts
}

// stale says that the cluster has changed by a quarter since the demand was frozen. Freezing anew forgets all ranks, so it
// must stay rare; a quarter gives some twenty epochs while a cluster fills.
func (f *fleet) stale() bool {
	return moved(int64(f.mix.Pods()), int64(f.frozen.pods), 16) ||
		moved(int64(f.total.FreeGPU), int64(f.frozen.freeGPU), int64(4*packing.WholeGPU)) ||
		f.total.GPU != f.frozen.gpu
}

func moved(now, then, least int64) bool {
	diff := now - then
	if diff < 0 {
		diff = -diff
	}
	return diff > max(then/4, least)
}

func (f *fleet) freeze(p *Plugin) {
	f.frozen = frozen{pods: f.mix.Pods(), freeGPU: f.total.FreeGPU, gpu: f.total.GPU}
	f.packer = p.packerFor(packing.NewDemand(&f.mix, f.total))
	f.ranks.SetPacker(f.packer)
	f.epoch++
}

// at is the node as of exactly this NodeInfo, if the fleet has it.
func (f *fleet) at(info fwk.NodeInfo) (*packing.Node, error, bool) {
	i, ok := f.index[info.Node().Name]
	if !ok || f.ranks.Version(i) != info.GetGeneration() {
		return nil, nil, false
	}
	return f.ranks.Node(i), f.doubts[i], true
}
