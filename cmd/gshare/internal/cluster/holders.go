package cluster

import (
	"cmp"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/residency"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// Free returns how much of a resource is allocatable on the node and not requested by its pods.
func (n *Node) Free(name v1.ResourceName) resource.Quantity {
	free := n.Object.Status.Allocatable[name].DeepCopy()
	free.Sub(n.Used[name])
	return free
}

func (n *Node) freeMilliCPU() int64 {
	free := n.Free(v1.ResourceCPU)
	return free.MilliValue()
}

// Holder is a container that holds a share of a slice.
type Holder struct {
	Pod       *v1.Pod
	Container string
	Index     int // of the vGPU in the container
	Model     kube.FitModel
	Class     share.Isolation
	Priority  share.Priority
	Share     share.Share
	Level     residency.Level // at which the pod counts on the slice
	Counted   share.Share     // the part of the share that counts at this level
}

// Name returns the container's name in the form namespace/pod/container.
func (h Holder) Name() string { return h.Pod.Namespace + "/" + h.Pod.Name + "/" + h.Container }

// Holders returns the containers that hold a share of the slice according to their pods' placements, sorted by name.
func (n *Node) Holders(slice string) (list []Holder) {
	for _, o := range n.placed {
		for _, c := range o.Placement.Containers {
			for i, v := range c.VGPUs {
				if v.Slice == slice {
					list = append(list, Holder{o.Pod, c.Name, i, o.Placement.Model, v.Class, v.Priority, v.Share, o.Level, o.Charge(v)})
				}
			}
		}
	}
	slices.SortStableFunc(list, func(a, b Holder) int { return cmp.Compare(a.Name(), b.Name()) })
	return list
}

// UntrustedPods returns a line for each pod that makes the node's free capacity unreliable, saying what is wrong with the pod.
func (s *Snapshot) UntrustedPods(n *Node) (list []string) {
	for _, pod := range s.onNode[n.Name] {
		said := s.PodRequest(pod)
		name := pod.Namespace + "/" + pod.Name
		switch {
		case !said.Asks:
		case said.PlacementErr != nil:
			list = append(list, name+": "+said.PlacementErr.Error())
		case said.Placed && said.Placement.Node != n.Name:
			list = append(list, name+": its placement is for another node")
		case !said.Placed:
			list = append(list, name+": it was not bound by gshare-scheduler")
		}
	}
	return list
}

// Unplaced reports whether the pod requests shares but has no placement, so that no slice can be shown for it.
func Unplaced(pod *v1.Pod) bool {
	return kube.RequestsShare(pod) && pod.Annotations[kube.AnnotationPlacement] == ""
}

// Closed returns the slices that accept no new pods: by slice ID, the reason that the node agent published, which may be empty.
func (n *Node) Closed() map[string]kube.Reason { return n.closed }

func closedOf(inventory kube.Inventory) map[string]kube.Reason {
	closed := map[string]kube.Reason{}
	for _, s := range inventory.Slices {
		if !s.Healthy {
			closed[s.ID] = s.Reason
		}
	}
	return closed
}

// ReasonText returns the text that is shown for the reason why a slice accepts no new pods.
func ReasonText(r kube.Reason) string {
	if r == "" {
		return "no reason given"
	}
	return string(r)
}

var remedies = map[kube.Reason]string{
	kube.ReasonFault:     "the device has failed, or the driver does not find it: see the agent's log and the kernel's (Xid); it opens again when the driver reports no error",
	kube.ReasonUsed:      "processes without a share use it: see the agent's log and its metric gshare_node_slice_used",
	kube.ReasonCordoned:  "an administrator has closed it: cordon and drain in the agent's configuration (node.yaml)",
	kube.ReasonClosing:   "its agent is being replaced: wait some seconds for the new one; if it does not start, run gshare doctor",
	kube.ReasonUnsaved:   "its agent cannot save the inventory: see the agent's log, and whether the node's disk is full",
	kube.ReasonUnwatched: "the kubelet does not watch the agent's plugin: wait some seconds; if that does not help, see the logs of the agent and of the kubelet",
}

// Remedy returns advice on how to reopen slices that are closed to new pods for the given reasons.
func Remedy(reasons []kube.Reason) string {
	reasons = slices.Clone(reasons)
	slices.Sort(reasons)
	var all []string
	for _, r := range slices.Compact(reasons) {
		text := remedies[r]
		if text == "" {
			text = "see the agent's log and its metrics gshare_node_slice_*"
		}
		all = append(all, ReasonText(r)+": "+text)
	}
	return strings.Join(all, "; ")
}
