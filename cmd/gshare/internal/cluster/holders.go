package cluster

import (
	"cmp"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/gshare-dev/gshare/vgpu/kube"
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
}

// Name returns the container's name in the form namespace/pod/container.
func (h Holder) Name() string { return h.Pod.Namespace + "/" + h.Pod.Name + "/" + h.Container }

// Holders returns the containers that hold a share of the slice according to their pods' placements, sorted by name.
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

// UntrustedPods returns a line for each pod because of which the free capacity of the node cannot be trusted, saying what is wrong with the pod.
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
