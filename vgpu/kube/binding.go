package kube

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// MakeBinding returns the Binding that binds the pod to the node with its placement, in one write. The UID is a precondition:
// a new pod of the same name is not bound by it. Errors wrap ErrForeign or ErrMalformed.
func MakeBinding(pod *v1.Pod, node string, p Placement) (*v1.Binding, error) {
	if p.UID != pod.UID || p.Node != node {
		return nil, fmt.Errorf("placement: %w: it is for pod %.64q on node %.64q", ErrForeign, p.UID, p.Node)
	}
	if err := p.checkContainers(pod); err != nil {
		return nil, err
	}
	text, err := EncodePlacement(p)
	if err != nil {
		return nil, err
	}
	return &v1.Binding{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:   pod.Namespace,
			Name:        pod.Name,
			UID:         pod.UID,
			Annotations: map[string]string{AnnotationPlacement: text},
		},
		Target: v1.ObjectReference{Kind: "Node", Name: node},
	}, nil
}

// PlacementOf reads the placement of a pod and verifies that it was made for this pod and its node, as far as the pod
// knows them yet. Errors wrap ErrMalformed or ErrForeign; nothing may be built on such a placement.
//
// It does not hold the shares against the pod's request: annotations can be edited after the binding, and what was
// placed is what is held.
func PlacementOf(pod *v1.Pod) (p Placement, present bool, err error) {
	text, present := pod.Annotations[AnnotationPlacement]
	if !present {
		return Placement{}, false, nil
	}
	if p, err = DecodePlacement(text); err == nil {
		err = p.checkOwner(pod)
	}
	if err != nil {
		return Placement{}, true, err
	}
	return p, true, nil
}

func (p Placement) checkOwner(pod *v1.Pod) error {
	if pod.UID != "" && p.UID != pod.UID {
		return fmt.Errorf("placement: %w: it is for the UID %q", ErrForeign, p.UID)
	}
	if node := pod.Spec.NodeName; node != "" && p.Node != node {
		return fmt.Errorf("placement: %w: it is for node %q, and the pod is on %q", ErrForeign, p.Node, node)
	}
	return p.checkContainers(pod)
}

func (p Placement) checkContainers(pod *v1.Pod) error {
	for i := range p.Containers {
		if name := p.Containers[i].Name; !lastingContainer(pod, name) {
			return fmt.Errorf("placement: %w: it has no sidecar or app container %.64q", ErrForeign, name)
		}
	}
	return nil
}

func lastingContainer(pod *v1.Pod, name string) bool {
	for c, lasts := range containers(pod) {
		if lasts && c.Name == name {
			return true
		}
	}
	return false
}
