package audit

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// checker collects the slices and the violated rules of a cluster.
type checker struct {
	options Options
	byName  map[string]*node
	nodes   []*node // by name
	report  Report
}

// Check computes what the slices hold from the nodes and the pods bound to them, and reports the violated rules. Pods that have ended hold
// nothing and are not checked.
func Check(nodes []v1.Node, pods []v1.Pod, o Options) Report {
	c := &checker{options: o, byName: make(map[string]*node, len(nodes))}
	for i := range nodes {
		c.readNode(&nodes[i])
	}
	slices.SortFunc(c.nodes, func(a, b *node) int { return strings.Compare(a.object.Name, b.object.Name) })
	for i := range pods {
		c.readPod(&pods[i])
	}
	for _, n := range c.nodes {
		c.checkNode(n)
		c.addToReport(n)
	}
	c.report.final = newFinalState(c.nodes, o)
	return c.report
}

func (c *checker) readNode(object *v1.Node) {
	n, err := newNode(object)
	c.byName[object.Name] = n
	c.nodes = append(c.nodes, n)
	if err != nil {
		c.violate(Violation{Kind: BadInventory, Node: object.Name}, "%v", err)
	}
}

func (c *checker) readPod(pod *v1.Pod) {
	if hasEnded(pod) {
		return
	}
	if pod.Spec.NodeName == "" {
		c.checkUnbound(pod)
		return
	}
	n := c.byName[pod.Spec.NodeName]
	if n == nil {
		c.orphan(pod, "", "the node is not there")
		return
	}
	n.addPod(pod)
	c.checkEligibility(n, pod)
	c.checkPlacement(n, pod)
}

func (c *checker) checkNode(n *node) {
	c.checkResources(n)
	for _, s := range n.slices {
		c.checkSlice(n, s)
	}
	c.checkDevices(n)
}

func (c *checker) violate(v Violation, format string, args ...any) {
	v.Text = fmt.Sprintf(format, args...)
	c.report.Violations = append(c.report.Violations, v)
}

func (c *checker) orphan(pod *v1.Pod, slice, text string) {
	o := Orphan{Node: pod.Spec.NodeName, Slice: slice, Pod: nameOf(pod), Text: text}
	c.report.Orphans = append(c.report.Orphans, o)
}

// hasEnded reports whether the pod has succeeded or failed, so that it holds no resources.
func hasEnded(pod *v1.Pod) bool {
	return pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed
}

func nameOf(pod *v1.Pod) string { return pod.Namespace + "/" + pod.Name }

// addToReport adds the slices of a node and their sums to the report.
func (c *checker) addToReport(n *node) {
	used := map[string]bool{} // by device
	for i, s := range n.slices {
		c.report.Slices = append(c.report.Slices, stateOf(n, s, i))
		c.report.Requested += s.requested
		used[s.Device] = used[s.Device] || len(s.held) > 0
	}
	c.report.GPUs += len(used)
	for _, in := range used {
		if in {
			c.report.GPUsUsed++
		}
	}
}

func stateOf(n *node, s *slice, index int) SliceState {
	state := SliceState{
		Node: n.object.Name, Index: index, ID: s.ID, Device: s.Device, Model: s.Model, Profile: s.Profile,
		Healthy: s.Healthy, Requested: s.requested, Memory: s.memoryWith(heldShare{}), Capacity: s.capacity(),
	}
	for i, h := range s.held {
		if i == 0 {
			state.Packing, state.Class = h.packing, h.class
		}
		state.Shares = append(state.Shares, PlacedShare{Pod: h.pod, Container: h.container, VGPU: h.vgpu, Share: h.share})
	}
	return state
}
