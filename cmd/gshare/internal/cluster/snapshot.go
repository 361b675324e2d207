package cluster

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	resource "k8s.io/component-helpers/resource"

	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/kube/nodeview"
	"github.com/gshare-dev/gshare/vgpu/packing"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// Snapshot is the state of a cluster at one moment: its nodes and pods, sorted by name, and the scheduler's profiles.
type Snapshot struct {
	Nodes    []*v1.Node
	Pods     []*v1.Pod
	Profiles []Profile
	Notes    []string // what could not be read

	onNode    map[string][]*v1.Pod // pods that have not ended, by node name
	nominated map[string][]*v1.Pod
	read      map[*v1.Pod]*nodeview.PodRequest
}

// Read reads the nodes, the pods and the scheduler's profiles of a cluster once.
func Read(ctx context.Context, client kubernetes.Interface) (*Snapshot, error) {
	s := &Snapshot{}
	var err error
	if s.Nodes, err = Nodes(ctx, client); err != nil {
		return nil, err
	}
	if s.Pods, err = Pods(ctx, client); err != nil {
		return nil, err
	}
	profiles, note := Profiles(ctx, client)
	s.Profiles = profiles
	if note != "" {
		s.Notes = append(s.Notes, note)
	}
	s.index()
	return s, nil
}

func (s *Snapshot) index() {
	slices.SortFunc(s.Nodes, func(a, b *v1.Node) int { return cmp.Compare(a.Name, b.Name) })
	slices.SortFunc(s.Pods, func(a, b *v1.Pod) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	s.read = map[*v1.Pod]*nodeview.PodRequest{}
	s.onNode, s.nominated = map[string][]*v1.Pod{}, map[string][]*v1.Pod{}
	for _, pod := range s.Pods {
		switch {
		case kube.Ended(pod):
		case pod.Spec.NodeName != "":
			s.onNode[pod.Spec.NodeName] = append(s.onNode[pod.Spec.NodeName], pod)
		case pod.Status.NominatedNodeName != "":
			s.nominated[pod.Status.NominatedNodeName] = append(s.nominated[pod.Status.NominatedNodeName], pod)
		}
	}
}

// Profile returns the scheduler profile with this name, or false if gshare's scheduler has no such profile.
func (s *Snapshot) Profile(scheduler string) (Profile, bool) {
	i := slices.IndexFunc(s.Profiles, func(p Profile) bool { return p.Name == scheduler })
	if i < 0 {
		return Profile{}, false
	}
	return s.Profiles[i], true
}

// Pod returns the pod with this name, or false if there is none.
func (s *Snapshot) Pod(name types.NamespacedName) (*v1.Pod, bool) {
	for _, pod := range s.Pods {
		if pod.Namespace == name.Namespace && pod.Name == name.Name {
			return pod, true
		}
	}
	return nil, false
}

// PodRequest returns what a pod of the snapshot requests from gshare. It decodes each pod only once.
func (s *Snapshot) PodRequest(pod *v1.Pod) *nodeview.PodRequest {
	known := s.read[pod]
	if known == nil {
		known = nodeview.PodRequestOf(pod)
		s.read[pod] = known
	}
	return known
}

// PodsOn returns the pods bound to a node that have not terminated.
func (s *Snapshot) PodsOn(node string) []*v1.Pod { return s.onNode[node] }

// Node is a node with its slices and the shares of pods on them.
type Node struct {
	*packing.Node
	Object    *v1.Node
	Used      v1.ResourceList // requested by the pods that run here
	Pods      int
	Untrusted error // why nothing is placed here, if the node cannot be trusted
	placed    []nodeview.Occupant
	closed    map[string]kube.Reason
}

// Derive returns the state of the node as a scheduler with the profile would see it when it places the pod asks, which may be nil. The zero
// profile trusts nodes with any rules. Pods for which without returns true are treated as deleted.
func (s *Snapshot) Derive(node *v1.Node, profile Profile, asks *v1.Pod, without func(*v1.Pod) bool) *Node {
	inventory, _, err := kube.InventoryOf(node)
	n := &Node{Object: node, Used: v1.ResourceList{}, closed: closedOf(inventory)}
	d := &nodeview.OccupancyBuilder{Node: packing.NewNode(node.Name, nodeview.Slices(inventory), 0, 0), Packer: profile.Packer, PodRequest: s.PodRequest}
	for _, pod := range s.onNode[node.Name] {
		if !without(pod) {
			d.AddPod(pod)
			n.count(pod)
		}
	}
	for _, pod := range s.nominated[node.Name] {
		if asks != nil && pod.UID != asks.UID && nodeview.Priority(pod) >= nodeview.Priority(asks) {
			d.AddPod(pod)
			n.count(pod)
		}
	}
	n.Untrusted, n.Node, n.placed = d.Build(), d.Node, d.Occupants()
	if err != nil {
		n.Untrusted = fmt.Errorf("%w: %w", nodeview.ErrInventory, err)
	}
	free := n.Free(v1.ResourceMemory)
	n.CPU, n.RAM = packing.MilliCPU(n.freeMilliCPU()), share.Bytes(free.Value())
	return n
}

// NoPod returns false for every pod: passed to Snapshot.Derive, it treats no pod as deleted.
func NoPod(*v1.Pod) bool { return false }

func (n *Node) count(pod *v1.Pod) {
	n.Pods++
	for name, q := range resource.PodRequests(pod, resource.PodResourcesOptions{}) {
		sum := n.Used[name]
		sum.Add(q)
		n.Used[name] = sum
	}
}
