package events

import (
	"fmt"
	"slices"

	"github.com/gshare-dev/gshare/vgpu/packing"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// Config describes the simulated cluster of equal nodes, each with the same number of equal GPUs.
type Config struct {
	Nodes       int
	GPUsPerNode int
	Memory      share.Bytes // of each GPU
	Gamma       int64       // bound of the sum of limits on one GPU, per mille
	Whole       bool        // no policy may divide models
}

// cluster holds the simulated nodes and the instances that run on them.
type cluster struct {
	policy    Policy
	packer    packing.Packer
	slices    []packing.Slice // of each node
	fleet     *packing.Fleet
	version   int64
	booked    [][]booking      // by node
	where     map[string][]int // nodes by instance
	running   map[string]Instance
	requested demand
	seen      learner
	active    int    // GPUs with at least one share
	gang      string // instance that is being placed
}

// demand holds the sums of SMs and memory that the running instances request, whatever the policy guarantees them.
type demand struct {
	sm     share.PerMille
	memory share.Bytes
}

func (d *demand) add(in Instance, sign int) {
	d.sm += share.PerMille(sign*in.GPUs) * in.Request
	d.memory += share.Bytes(sign*in.GPUs) * in.Memory
}

// booking is one pod of an instance with the slices that it occupies on a node.
type booking struct {
	instance string
	node     int
	pod      *packing.Pod
	plan     packing.Plan
}

func newCluster(cfg Config, p Policy) *cluster {
	p.cuts = p.cuts && !cfg.Whole
	c := &cluster{
		policy: p, packer: packing.Packer{Rules: packing.NewRules(packing.Slots), Ranker: p.ranker(&packing.Demand{})}, seen: newLearner(),
		booked: make([][]booking, cfg.Nodes), where: map[string][]int{}, running: map[string]Instance{},
	}
	for i := range cfg.GPUsPerNode {
		c.slices = append(c.slices, packing.Slice{
			ID: packing.SliceID(fmt.Sprint(i)), Device: fmt.Sprint(i), Memory: cfg.Memory, Healthy: true,
			Classes: []share.Isolation{share.Exclusive, share.MPS, share.Elastic}, MaxShares: int(share.Whole), Gamma: cfg.Gamma,
		})
	}
	c.fleet = packing.NewFleet(c.packer, cfg.Nodes)
	for i := range cfg.Nodes {
		c.rebuildNode(i)
	}
	return c
}

// stop removes an instance from the cluster and frees its GPUs.
func (c *cluster) stop(name string) {
	for _, i := range c.where[name] {
		c.booked[i] = slices.DeleteFunc(c.booked[i], func(b booking) bool {
			if b.instance == name {
				c.seen.mix.Add(packing.ShapeOf(b.pod), -1)
			}
			return b.instance == name
		})
		c.rebuildNode(i)
	}
	delete(c.where, name)
	c.requested.add(c.running[name], -1)
	delete(c.running, name)
}

func (c *cluster) book(instance string, b booking) {
	b.instance = instance
	c.seen.mix.Add(packing.ShapeOf(b.pod), 1)
	c.booked[b.node] = append(c.booked[b.node], b)
	if !slices.Contains(c.where[instance], b.node) {
		c.where[instance] = append(c.where[instance], b.node)
	}
	c.rebuildNode(b.node)
}

// rebuildNode computes the i-th node from its bookings. While a gang (an instance of several workers) is being placed, a GPU that
// holds one of its workers is closed to its other workers (D3).
func (c *cluster) rebuildNode(i int) {
	node := packing.NewNode(fmt.Sprintf("%06d", i), c.slices, 0, 0)
	for _, b := range c.booked[i] {
		node.Take(c.packer.Rules.Model, b.pod, b.plan)
		if b.instance == c.gang {
			node.Slices = closeGPUs(node.Slices, b.plan)
		}
	}
	if old := c.fleet.Node(i); old != nil {
		c.count(old, -1)
	}
	c.count(node, 1)
	c.version++
	c.fleet.Set(i, node, c.version)
}

func (c *cluster) count(n *packing.Node, sign int) {
	c.seen.total.Add(packing.CapacityOf(n, 0), sign)
	for i := range n.Loads {
		if !n.Loads[i].Empty() {
			c.active += sign
		}
	}
}

func closeGPUs(all []packing.Slice, plan packing.Plan) []packing.Slice {
	out := slices.Clone(all)
	for _, picks := range plan {
		for _, p := range picks {
			out[p.Slice].Healthy = false
		}
	}
	return out
}

// learner holds what the scheduler's plugins learn from the cluster: the mix of running pods, the total capacity, and the epoch for which
// the nodes are ranked.
type learner struct {
	mix    packing.Mix
	total  packing.Capacity
	frozen packing.Epoch
}

func newLearner() learner {
	return learner{total: packing.Capacity{Models: map[string]packing.MilliGPU{}}}
}

// updateDemand recomputes the demand for the node ranking if the cluster has changed enough, as the scheduler does.
func (c *cluster) updateDemand() {
	if !c.policy.learns || !c.seen.frozen.Expired(&c.seen.mix, c.seen.total) {
		return
	}
	c.seen.frozen = packing.NewEpoch(&c.seen.mix, c.seen.total)
	c.packer.Ranker = c.policy.ranker(packing.NewDemand(&c.seen.mix, c.seen.total))
	c.fleet.SetPacker(c.packer)
}
