package audit

import (
	v1 "k8s.io/api/core/v1"

	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// claim is a bound pod with its request and its placement.
type claim struct {
	checker   *checker
	node      *node
	pod       *v1.Pod
	request   share.Request
	known     bool // the request can be read
	placement kube.Placement
}

func (c *checker) checkUnbound(pod *v1.Pod) {
	if _, found := pod.Annotations[kube.AnnotationPlacement]; found {
		c.violate(Violation{Kind: Unbound, Pod: nameOf(pod)}, "the pod is not bound and has a placement")
	}
}

// checkPlacement checks the placement of a bound pod against its request, and adds it to the slices. The placement is what the pod
// holds, even if the request differs.
func (c *checker) checkPlacement(n *node, pod *v1.Pod) {
	request, asks, err := kube.RequestOf(pod)
	k := &claim{checker: c, node: n, pod: pod, request: request, known: err == nil}
	text, placed := pod.Annotations[kube.AnnotationPlacement]
	if err != nil {
		k.violate(BadRequest, "", "%v", err)
	}
	switch {
	case placed && k.read(text):
		k.compare()
		k.hold()
	case asks || placed:
		n.doubtful = true
	}
	if asks && !placed {
		k.violate(Unplaced, "", "the pod asks for GPUs and has no placement")
	}
}

// read decodes the placement and reports whether it is of this pod and node.
func (k *claim) read(text string) bool {
	var err error
	if k.placement, err = kube.DecodePlacement(text); err != nil {
		k.violate(BadPlacement, "", "%v", err)
		return false
	}
	switch {
	case k.placement.Node != k.pod.Spec.NodeName:
		k.violate(Foreign, "", "the placement is for node %s", k.placement.Node)
	case k.placement.UID != k.pod.UID:
		k.violate(Foreign, "", "the placement is for UID %s, and the pod has %s", k.placement.UID, k.pod.UID)
	default:
		return true
	}
	return false
}

func (k *claim) violate(kind Kind, slice, format string, args ...any) {
	v := Violation{Kind: kind, Node: k.pod.Spec.NodeName, Slice: slice, Pod: nameOf(k.pod)}
	k.checker.violate(v, format, args...)
}
