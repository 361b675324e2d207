package verdict

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/resource"

	"github.com/gshare-dev/gshare/cmd/gshare/internal/cluster"
	"github.com/gshare-dev/gshare/vgpu/explain"
	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/kube/nodeview"
	"github.com/gshare-dev/gshare/vgpu/packing"
	"github.com/gshare-dev/gshare/vgpu/residency"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// Node reports whether the pod fits on one node and, if not, the obstacles.
type Node struct {
	Name      string           `json:"name"`
	Fits      bool             `json:"fits"`
	Obstacles []Obstacle       `json:"obstacles,omitempty"` // in the order of the scheduler's checks
	Slices    []Slice          `json:"slices,omitempty"`
	Changes   []explain.Change `json:"changes,omitempty"` // of the pod, each of which would make it fit here
	Leave     []string         `json:"leave,omitempty"`   // pods; the pod would fit if any one of them ended
	depth     int              // how many of the scheduler's checks the pod passes
	derived   *cluster.Node    // nil unless the slices are an obstacle
	refusal   packing.Refusal
}

// Obstacle is one reason why a pod cannot run on a node.
type Obstacle struct {
	Reason string `json:"reason"`
	Detail string `json:"detail,omitempty"`
	Fix    string `json:"fix,omitempty"`
}

// Slice reports on one slice, for each container of the pod, whether its share would be admitted there or why not.
type Slice struct {
	ID      string   `json:"id"`
	Model   string   `json:"model"`
	Says    []string `json:"says"`
	Closed  string   `json:"closed,omitempty"` // reason, in a word, why it accepts no new pods, if that is an obstacle
	Holders []string `json:"holders,omitempty"`
	Shared  string   `json:"shared,omitempty"` // what the instances that have given up their SM-time still hold there
}

func (n *Node) fix() string {
	for _, o := range n.Obstacles {
		if o.Fix != "" {
			return o.Fix
		}
	}
	return ""
}

// nodeExplainer finds out for each node why one pod cannot run there.
type nodeExplainer struct {
	snapshot    *cluster.Snapshot
	pod         *v1.Pod
	request     *nodeview.PodRequest
	profile     cluster.Profile
	eligibility nodeview.EligibilityCheck
	requests    v1.ResourceList
}

func newNodeExplainer(s *cluster.Snapshot, pod *v1.Pod, request *nodeview.PodRequest, profile cluster.Profile) *nodeExplainer {
	return &nodeExplainer{s, pod, request, profile, nodeview.NewEligibilityCheck(pod), resource.PodRequests(pod, resource.PodResourcesOptions{})}
}

// How many of the scheduler's checks a pod passes on a node; reports list the nodes where it passes most first.
const (
	ineligible = iota * 100
	noResources
	asked // the packer was asked; its refusal, a number, is added
)

// explainNode returns the obstacles that keep the pod off a node. open is the node with its slices if nothing but the slices can keep the pod
// off, else nil.
func (v *nodeExplainer) explainNode(object *v1.Node) (out Node, open *packing.Node) {
	n := v.snapshot.Derive(object, v.profile, v.pod, cluster.NoPod)
	out = Node{Name: object.Name, Obstacles: v.ineligibility(object), depth: asked}
	shortages := v.missingResources(n)
	switch {
	case len(out.Obstacles) > 0:
		out.depth = ineligible
	case len(shortages) > 0:
		out.depth = noResources
	default:
		open = n.Node
	}
	out.Obstacles = append(out.Obstacles, shortages...)
	if n.Untrusted != nil {
		out.Obstacles = append(out.Obstacles, v.untrusted(n))
		return out, nil
	}
	_, _, refusal := v.profile.Packer.Place(n.Node, &v.request.Pod)
	if refusal == packing.Admitted {
		out.Obstacles = append(out.Obstacles, v.unadvertisedResources(n)...)
		out.Fits = len(out.Obstacles) == 0
		return out, open
	}
	out.depth += int(refusal)
	out.Obstacles = append(out.Obstacles, Obstacle{Reason: refusal.String(), Fix: explain.Advice(refusal)})
	out.derived, out.refusal = n, refusal
	return out, open
}

// addSlices adds the packer's result for each slice of the node, and the changes to the pod that would make it fit there.
func (v *nodeExplainer) addSlices(out *Node) {
	n := out.derived
	if n == nil {
		return
	}
	var closed []kube.Reason // reasons of the slices that accept no new pods
	for i, says := range explain.SliceRefusals(v.profile.Packer.Rules, n.Node, &v.request.Pod) {
		s := &n.Slices[i]
		line := Slice{ID: string(s.ID), Model: strings.TrimSpace(s.Model + " " + s.Profile)}
		for _, r := range says {
			line.Says = append(line.Says, r.String())
		}
		if slices.Contains(says, packing.Unhealthy) {
			line.Closed = cluster.ReasonText(n.Closed()[line.ID])
			closed = append(closed, n.Closed()[line.ID])
		}
		for _, h := range n.Holders(string(s.ID)) {
			line.Holders = append(line.Holders, h.Name())
		}
		line.Shared = heldByShared(n.Holders(string(s.ID)))
		out.Slices = append(out.Slices, line)
	}
	if out.refusal == packing.Unhealthy {
		out.Obstacles[len(out.Obstacles)-1].Fix = cluster.Remedy(closed)
	}
	q := explain.Search{Packer: v.profile.Packer, Pod: &v.request.Pod, Nodes: []*packing.Node{n.Node}, Annotations: v.pod.Annotations}
	out.Changes = q.Changes()
	if !out.refusal.NeverFits() {
		out.Leave = v.blockingPods(n)
	}
}

// heldByShared returns what those holders of a slice that have given up their SM-time still hold, or "" if there are none.
func heldByShared(holders []cluster.Holder) string {
	count, memory := 0, share.Bytes(0)
	for _, h := range holders {
		if h.Level < residency.Hot {
			count++
			memory += h.Counted.Memory
		}
	}
	switch count {
	case 0:
		return ""
	case 1:
		return fmt.Sprintf("1 Shared instance holds %d MiB", memory/share.MiB)
	}
	return fmt.Sprintf("%d Shared instances hold %d MiB", count, memory/share.MiB)
}

// blockingPods returns those pods of the node of which each, by ending, would alone leave enough space for the pod.
func (v *nodeExplainer) blockingPods(n *cluster.Node) (names []string) {
	for _, other := range v.snapshot.PodsOn(n.Name) {
		if !kube.RequestsShare(other) {
			continue
		}
		after := v.snapshot.Derive(n.Object, v.profile, v.pod, func(p *v1.Pod) bool { return p == other })
		if _, _, refusal := v.profile.Packer.Place(after.Node, &v.request.Pod); after.Untrusted == nil && refusal == packing.Admitted {
			names = append(names, other.Namespace+"/"+other.Name)
		}
	}
	return names
}

// ineligibility returns an obstacle if the node is cordoned, has an untolerated taint, or is excluded by the pod's node selector or affinity.
func (v *nodeExplainer) ineligibility(n *v1.Node) []Obstacle {
	switch result, taint := v.eligibility.Check(n); result {
	case nodeview.Cordoned:
		return []Obstacle{{"the node is cordoned", "", "kubectl uncordon " + n.Name}}
	case nodeview.Tainted:
		return []Obstacle{{"untolerated taint", taint.ToString(), "tolerate the taint " + taint.ToString() + ", or remove it from the node"}}
	case nodeview.NotSelected:
		return []Obstacle{{"node selector or affinity does not match", "", "change nodeSelector or nodeAffinity, or label the node"}}
	}
	return nil
}

// missingResources returns the resources of which the node has too little free, as kube-scheduler's NodeResourcesFit would report them. Of
// gshare's resources it only checks gshare/vgpu: the others are sums over the slices, which the packer checks in detail.
func (v *nodeExplainer) missingResources(n *cluster.Node) (list []Obstacle) {
	if most := n.Object.Status.Allocatable.Pods().Value(); int64(n.Pods) >= most {
		list = append(list, Obstacle{"too many pods", fmt.Sprintf("%d of %d", n.Pods, most), "wait until a pod there ends"})
	}
	return append(list, v.insufficient(n, func(name v1.ResourceName) bool {
		return !isGshareResource(name) || name == kube.ResourceVGPU && len(n.Slices) > 0
	})...)
}

// unadvertisedResources returns the resources that the node's slices have free but the node's status does not advertise.
func (v *nodeExplainer) unadvertisedResources(n *cluster.Node) []Obstacle {
	return v.insufficient(n, func(name v1.ResourceName) bool { return isGshareResource(name) && name != kube.ResourceVGPU })
}

func (v *nodeExplainer) insufficient(n *cluster.Node, counts func(v1.ResourceName) bool) (list []Obstacle) {
	for _, name := range slices.Sorted(maps.Keys(v.requests)) {
		wanted, free := v.requests[name], n.Free(name)
		if !counts(name) || wanted.IsZero() || wanted.Cmp(free) <= 0 {
			continue
		}
		list = append(list, Obstacle{
			"insufficient " + string(name), fmt.Sprintf("requests %s, %s of %s is free", wanted.String(), free.String(), quantity(n.Object.Status.Allocatable, name)),
			shortageFix(name, n.Object),
		})
	}
	return list
}

func quantity(list v1.ResourceList, name v1.ResourceName) string {
	q := list[name]
	return q.String()
}

func shortageFix(name v1.ResourceName, n *v1.Node) string {
	_, advertised := n.Status.Allocatable[name]
	switch {
	case isGshareResource(name) && !advertised:
		return "the node advertises none: check that its node agent runs and is registered with the kubelet (gshare doctor)"
	case name == kube.ResourceVGPU:
		return "every vGPU uses one of the node's gshare/vgpu: wait until a pod there ends, or have an administrator raise maxShares"
	case (name == kube.ResourceSMTime || name == kube.ResourceMemory) && makesInstances(n):
		return "wait until a pod there ends, or have an administrator leave large profiles out of kubernetes.onDemandProfiles: the node offers " +
			"what the fewest instances that can be made have"
	}
	return "request less " + string(name) + ", or wait until a pod there ends"
}

// makesInstances reports whether the node's agent makes MIG instances on demand.
func makesInstances(n *v1.Node) bool {
	inventory, _, err := kube.InventoryOf(n)
	return err == nil && slices.ContainsFunc(inventory.Slices, func(s kube.Slice) bool { return s.Room != 0 })
}

func (v *nodeExplainer) untrusted(n *cluster.Node) Obstacle {
	reason := n.Untrusted
	for _, known := range []error{nodeview.ErrInventory, nodeview.ErrPlacement, nodeview.ErrUnknownUse, nodeview.ErrNominated} {
		if errors.Is(n.Untrusted, known) {
			reason = known
		}
	}
	o := Obstacle{Reason: reason.Error(), Detail: strings.Join(v.snapshot.UntrustedPods(n), "; ")}
	switch reason {
	case nodeview.ErrInventory:
		o.Detail = n.Untrusted.Error()
		o.Fix = "the node agent writes the annotation " + kube.AnnotationInventory + " again when it is removed: look at its log"
	case nodeview.ErrNominated:
		o.Fix = "wait until the nominated pod has been bound"
	default:
		o.Fix = "delete the pods named here: nothing is placed on a node whose free capacity is unknown"
	}
	return o
}

// isGshareResource reports whether the resource is one that gshare advertises.
func isGshareResource(name v1.ResourceName) bool {
	switch name {
	case kube.ResourceSM, kube.ResourceQuota, kube.ResourceMemory, kube.ResourceVGPU, kube.ResourceSMTime:
		return true
	}
	return false
}
