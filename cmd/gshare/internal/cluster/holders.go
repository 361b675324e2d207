package cluster

import (
	"cmp"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// Free returns what pods have left of a resource of the node.
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
}

// Name is namespace/pod/container, with the number of the vGPU behind the first one.
func (h Holder) Name() string { return h.Pod.Namespace + "/" + h.Pod.Name + "/" + h.Container }

// Holders returns who holds a slice by a placement, in the order of their names.
func (n *Node) Holders(slice string) (list []Holder) {
	for _, o := range n.placed {
		for _, c := range o.Placement.Containers {
			for i, v := range c.VGPUs {
				if v.Slice == slice {
					list = append(list, Holder{o.Pod, c.Name, i, o.Placement.Model, v.Class, v.Priority, v.Share})
				}
			}
		}
	}
	slices.SortStableFunc(list, func(a, b Holder) int { return cmp.Compare(a.Name(), b.Name()) })
	return list
}

// Suspects returns the pods for which the node is not trusted, and what is wrong with each.
func (s *Snapshot) Suspects(n *Node) (list []string) {
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

// Unplaced are pods that only a packer could place: they have no slice to be shown on.
func Unplaced(pod *v1.Pod) bool {
	return kube.RequestsShare(pod) && pod.Annotations[kube.AnnotationPlacement] == ""
}
