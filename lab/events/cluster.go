package events

import (
	"fmt"
	"slices"

	"github.com/gshare-dev/gshare/vgpu/packing"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// Config is a cluster of equal nodes.
type Config struct {
	Nodes       int
	GPUsPerNode int
	Memory      share.Bytes // of each GPU
	Gamma       int64       // bound of the limits on one GPU, per mille
	Whole       bool        // forbids every policy to cut models
}

// cluster is the nodes and the instances on them.
type cluster struct {
	policy  Policy
	packer  packing.Packer
	slices  []packing.Slice // of every node
	fleet   *packing.Fleet
	version int64
	booked  [][]booking      // by node
	where   map[string][]int // nodes by instance
	running map[string]Instance
	asked   demand
	seen    learner
	active  int    // GPUs with at least one share
	gang    string // the instance that is being placed
}

// demand is what the running instances request, whatever the policy guarantees them.
type demand struct {
	sm     share.PerMille
	memory share.Bytes
}

func (d *demand) add(in Instance, sign int) {
	d.sm += share.PerMille(sign*in.GPUs) * in.Request
	d.memory += share.Bytes(sign*in.GPUs) * in.Memory
}

// booking is a part of an instance on one node.
type booking struct {
	instance string
	node     int
	pod      *packing.Pod
	plan     packing.Plan
}

func newCluster(cfg Config, p Policy) *cluster {
	rules := packing.NewRules(packing.Slots)
	rules.Gamma = cfg.Gamma
	p.cuts = p.cuts && !cfg.Whole
	c := &cluster{
		policy: p, packer: packing.Packer{Rules: rules, Ranker: p.ranker(&packing.Demand{})}, seen: newLearner(),
		booked: make([][]booking, cfg.Nodes), where: map[string][]int{}, running: map[string]Instance{},
	}
	for i := range cfg.GPUsPerNode {
		c.slices = append(c.slices, packing.Slice{
			ID: packing.SliceID(fmt.Sprint(i)), Device: fmt.Sprint(i), Memory: cfg.Memory, Healthy: true,
			Classes: []share.Isolation{share.Exclusive, share.MPS, share.Elastic}, MaxShares: int(share.Whole),
		})
	}
	c.fleet = packing.NewFleet(c.packer, cfg.Nodes)
	for i := range cfg.Nodes {
		c.rebuild(i)
	}
	return c
}

// stop frees the GPUs of an instance.
func (c *cluster) stop(name string) {
	for _, i := range c.where[name] {
		c.booked[i] = slices.DeleteFunc(c.booked[i], func(b booking) bool {
			if b.instance == name {
				c.seen.mix.Add(packing.ShapeOf(b.pod), -1)
			}
			return b.instance == name
		})
		c.rebuild(i)
	}
	delete(c.where, name)
	c.asked.add(c.running[name], -1)
	delete(c.running, name)
}

func (c *cluster) book(instance string, b booking) {
	b.instance = instance
	c.seen.mix.Add(packing.ShapeOf(b.pod), 1)
	c.booked[b.node] = append(c.booked[b.node], b)
	if !slices.Contains(c.where[instance], b.node) {
		c.where[instance] = append(c.where[instance], b.node)
	}
	c.rebuild(b.node)
}

// rebuild computes the node from its bookings. While a gang is placed, a GPU with one of its workers is closed to the others (D3).
func (c *cluster) rebuild(i int) {
	node := packing.NewNode(fmt.Sprintf("%06d", i), c.slices, 0, 0)
	for _, b := range c.booked[i] {
		node.Take(c.packer.Rules.Model, b.pod, b.plan)
		if b.instance == c.gang {
			node.Slices = closed(node.Slices, b.plan)
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

func closed(all []packing.Slice, plan packing.Plan) []packing.Slice {
	out := slices.Clone(all)
	for _, picks := range plan {
		for _, p := range picks {
			out[p.Slice].Healthy = false
		}
	}
	return out
}
