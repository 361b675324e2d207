package rebalance

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/gshare-dev/gshare/vgpu/packing"
)

// Bounds of the search for places, so that no single device or pod takes long in a large cluster.
const (
	maxTargets = 4   // nodes that are tried for a pod
	maxTries   = 200 // moves that are tried to clear one set of slices
)

// state is the cluster with the moves made so far. Nodes are rebuilt from the list of their pods, since a share cannot be removed from a
// packing.Node.
type state struct {
	*Cluster
	nodes   []*packing.Node // with their pods; never changed, only replaced
	on      [][]int         // pods by node
	at      []spot          // of each pod
	budgets []int
	moved   []bool
	moves   []Move
	freed   int // devices cleared on purpose, not as a side effect

	open   bool     // pods may also move to unused devices
	closed []Device // devices that are being cleared and so accept no pods

	fleet   *packing.Fleet // holds the views of the nodes that show makes
	version int64
	keys    []string // identify the pods to the fleet
}

// spot is where a pod runs: its node and the slices that it holds there.
type spot struct {
	node int
	plan packing.Plan
}

func newState(c *Cluster, open bool) *state {
	s := &state{
		Cluster: c, open: open, budgets: slices.Clone(c.Budgets), nodes: make([]*packing.Node, len(c.Nodes)), on: make([][]int, len(c.Nodes)),
		at: make([]spot, len(c.Pods)), moved: make([]bool, len(c.Pods)), keys: make([]string, len(c.Pods)),
		fleet: packing.NewFleet(c.Packer, len(c.Nodes)),
	}
	for i := range c.Pods {
		p := &c.Pods[i]
		s.at[i] = spot{p.Node, p.Plan}
		s.on[p.Node] = append(s.on[p.Node], i)
		s.keys[i] = fmt.Sprint(p.Pod)
	}
	for i := range c.Nodes {
		s.rebuild(i)
	}
	return s
}

// rebuild computes a node from its pods.
func (s *state) rebuild(node int) {
	s.nodes[node] = s.without(node, nil)
	s.show(node)
}

// without returns a node as it would be if some of its pods were gone.
func (s *state) without(node int, gone []int) *packing.Node {
	n := s.Nodes[node].Clone()
	for _, p := range s.on[node] {
		if !slices.Contains(gone, p) {
			pod := &s.Pods[p]
			n.Take(s.Packer.Rules.Model, &pod.Pod, s.at[p].plan)
			n.CPU -= pod.CPU
			n.RAM -= pod.RAM
		}
	}
	return n
}

// show gives the fleet a view of a node on which the only healthy slices are those that may receive pods.
func (s *state) show(node int) {
	view := *s.nodes[node]
	view.Slices = slices.Clone(view.Slices)
	for i := range view.Slices {
		d := Device{node, view.Slices[i].Device}
		if slices.Contains(s.closed, d) || !s.open && !s.isUsed(d) {
			view.Slices[i].Healthy = false
		}
	}
	s.version++
	s.fleet.Set(node, &view, s.version)
}

// isUsed reports whether a device holds a share.
func (s *state) isUsed(d Device) bool {
	n := s.nodes[d.Node]
	for i := range n.Slices {
		if n.Slices[i].Device == d.ID && !n.Loads[i].Empty() {
			return true
		}
	}
	return false
}

// close keeps pods away from devices of one node while they are being cleared. Devices that were closed before are opened; without devices,
// all are open again.
func (s *state) close(devices []Device) {
	before := s.closed
	s.closed = devices
	for _, d := range slices.Concat(before, devices) {
		s.show(d.Node)
	}
}

// mayMove reports whether a pod can be evicted now.
func (s *state) mayMove(p int) bool {
	pod := &s.Pods[p]
	return pod.Movable && !s.moved[p] && !slices.ContainsFunc(pod.Budgets, func(b int) bool { return s.budgets[b] <= 0 })
}

// clear moves the pods away, one after the other. It reports whether all of them have found other places and, unless done is nil, done then
// returns true. Otherwise it changes nothing.
func (s *state) clear(pods []int, done func() bool) bool {
	pods = slices.Clone(pods)
	slices.SortStableFunc(pods, func(a, b int) int { return compareSizes(&s.Pods[b], &s.Pods[a]) })
	tries := maxTries
	return s.clearNext(pods, done, &tries)
}

func (s *state) clearNext(pods []int, done func() bool, tries *int) bool {
	if len(pods) == 0 {
		return done == nil || done()
	}
	p := pods[0]
	if !s.mayMove(p) {
		return false
	}
	for _, to := range s.targets(p) {
		if *tries--; *tries < 0 {
			return false
		}
		s.move(p, to)
		if s.clearNext(pods[1:], done, tries) {
			return true
		}
		s.undo()
	}
	return false
}

// compareSizes orders pods by SM-time, then by memory.
func compareSizes(a, b *Pod) int {
	return cmp.Or(cmp.Compare(a.Request.Area(), b.Request.Area()), cmp.Compare(a.memory(), b.memory()))
}

// targets returns the best places for a pod: beside the pod itself if its owner can run the replacement at the same time, otherwise as if
// the pod were gone.
func (s *state) targets(p int) (spots []spot) {
	pod := &s.Pods[p]
	if !pod.Twice {
		s.take(p)
		defer s.put(p, s.at[p])
	}
	eligible := func(i int) bool { return pod.fits(s.nodes[i]) && (s.Eligible == nil || s.Eligible(pod, i)) }
	for _, c := range s.fleet.Best(s.keys[p], &pod.Pod, maxTargets, eligible) {
		plan, _, refusal := s.Packer.Place(s.fleet.Node(c.Node), &pod.Pod)
		if refusal == packing.Admitted {
			spots = append(spots, spot{c.Node, plan})
		}
	}
	return spots
}

// take removes a pod from its node, and put places it on one.
func (s *state) take(p int) {
	node := s.at[p].node
	s.on[node] = slices.DeleteFunc(s.on[node], func(o int) bool { return o == p })
	s.rebuild(node)
}

func (s *state) put(p int, to spot) {
	s.at[p] = to
	s.on[to.node] = append(s.on[to.node], p)
	s.rebuild(to.node)
}

func (s *state) move(p int, to spot) {
	pod := &s.Pods[p]
	s.moves = append(s.moves, Move{Pod: p, From: s.at[p].node, To: to.node, Plan: to.plan, First: pod.Twice})
	s.take(p)
	s.put(p, to)
	s.count(p, -1)
}

// undo takes back the last move. A pod is moved at most once, so it returns to its place in the cluster.
func (s *state) undo() {
	last := s.moves[len(s.moves)-1]
	s.moves = s.moves[:len(s.moves)-1]
	s.take(last.Pod)
	s.put(last.Pod, spot{s.Pods[last.Pod].Node, s.Pods[last.Pod].Plan})
	s.count(last.Pod, 1)
}

// count marks a pod as moved and charges its budgets if sign is -1; with 1 it takes both back.
func (s *state) count(p, sign int) {
	s.moved[p] = sign < 0
	for _, b := range s.Pods[p].Budgets {
		s.budgets[b] += sign
	}
}

// plan returns the moves made so far, and the devices that they have freed.
func (s *state) plan() Plan {
	plan := Plan{Moves: s.moves}
	seen := map[Device]bool{}
	for i := range s.Pods {
		p := &s.Pods[i]
		for _, d := range s.devicesOf(spot{p.Node, p.Plan}) {
			if !seen[d] && !s.isUsed(d) {
				plan.Freed = append(plan.Freed, d)
			}
			seen[d] = true
		}
	}
	return plan
}

// devicesOf returns the devices of which a pod at this spot holds slices, each once.
func (c *Cluster) devicesOf(at spot) (devices []Device) {
	for _, picks := range at.plan {
		for _, pick := range picks {
			if d := (Device{at.node, c.Nodes[at.node].Slices[pick.Slice].Device}); !slices.Contains(devices, d) {
				devices = append(devices, d)
			}
		}
	}
	return devices
}
