package kube

import (
	"encoding/json"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// MakeBinding returns the Binding that binds the pod to the node and writes its placement annotation in one request. The pod's UID is a
// precondition, so a later pod of the same name is not bound. Errors wrap ErrForeign or ErrMalformed.
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

// PlacementOf decodes the placement annotation of a pod and verifies that it was made for this pod and its node, as far as the pod has a UID and
// a node yet. Errors wrap ErrMalformed or ErrForeign; such a placement must not be used for any decision.
//
// PlacementOf does not compare the shares with the pod's request: annotations can be edited after the binding, and the pod still holds what was placed.
func PlacementOf(pod *v1.Pod) (p Placement, present bool, err error) {
	text := pod.Annotations[AnnotationPlacement]
	if text == "" { // no scheduler writes an empty one, but users can where the admission policies are missing
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

// TakesTurns reports whether a pod was placed with class swap, in which it holds the memory of its slice in turn with other pods.
func TakesTurns(pod *v1.Pod) bool {
	p, present, err := PlacementOf(pod)
	return present && err == nil && slices.ContainsFunc(p.Containers, func(c PlacedContainer) bool { return c.VGPUs[0].Class == share.Swap })
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
	for c, lasts := range eachContainer(pod) {
		if lasts && c.Name == name {
			return true
		}
	}
	return false
}

// BoundAs reports whether the pod is bound exactly as in the binding: to the same node and with the same placement annotation.
func BoundAs(pod *v1.Pod, b *v1.Binding) bool {
	return pod.UID == b.UID && pod.Spec.NodeName == b.Target.Name &&
		pod.Annotations[AnnotationPlacement] == b.Annotations[AnnotationPlacement]
}

// Satisfies reports whether the placement covers the request: the same containers with the same numbers of vGPUs, each with the requested
// SMs, quota and memory. Limits and weights are not compared: they come from annotations, which may change after the share was frozen.
func Satisfies(p Placement, r share.Request) bool {
	return slices.EqualFunc(p.Containers, r.Containers, func(placed PlacedContainer, asked share.Container) bool {
		return placed.Name == asked.Name && len(placed.VGPUs) == asked.VGPUs &&
			!slices.ContainsFunc(placed.VGPUs, func(v PlacedVGPU) bool { return !sameRequests(v.Share, asked.Share) })
	})
}

func sameRequests(a, b share.Share) bool {
	return a.SMRequest == b.SMRequest && a.QuotaRequest == b.QuotaRequest && a.Memory == b.Memory
}

// CapacityPatch returns the merge patch that sets a node's capacity and allocatable resources to has, or nil if they are right already. It
// leaves out gshare/vgpu, which the kubelet writes.
//
// A keep that is not nil means that pods are bound to the node. The kubelet admits its pods again when it restarts, and fails those that no
// longer fit. So a capacity that is larger than in has is not lowered, except for the resources in keep, which gives what all pods request
// together: such a capacity may fall as far as that.
func CapacityPatch(node *v1.Node, has, keep v1.ResourceList) []byte {
	want := v1.ResourceList{}
	for name, q := range has {
		if name == ResourceVGPU {
			continue
		}
		if old := node.Status.Capacity[name]; keep != nil && old.Cmp(q) > 0 {
			requested, known := keep[name]
			switch {
			case !known || requested.Cmp(old) > 0:
				q = old
			case requested.Cmp(q) > 0:
				q = requested
			}
		}
		if capacity, allocatable := node.Status.Capacity[name], node.Status.Allocatable[name]; capacity.Cmp(q) != 0 || allocatable.Cmp(q) != 0 {
			want[name] = q
		}
	}
	if len(want) == 0 {
		return nil
	}
	return patch(map[string]any{"status": map[string]any{"capacity": want, "allocatable": want}})
}

// RemoveCapacityPatch returns the merge patch that removes gshare's resources from the status of a node, or nil if there are none. gshare/vgpu stays
// until the kubelet reports it as zero, because the kubelet would write it again: it does so for five minutes after a device plugin has ended.
func RemoveCapacityPatch(node *v1.Node) []byte {
	gone := map[v1.ResourceName]any{}
	for _, name := range resources {
		if q, present := node.Status.Capacity[name]; present && (name != ResourceVGPU || q.IsZero()) {
			gone[name] = nil
		}
	}
	if len(gone) == 0 {
		return nil
	}
	return patch(map[string]any{"status": map[string]any{"capacity": gone, "allocatable": gone}})
}

// RemoveAnnotationPatch returns the merge patch that removes one annotation.
func RemoveAnnotationPatch(name string) []byte {
	return patch(map[string]any{"metadata": map[string]any{"annotations": map[string]any{name: nil}}})
}

// AnnotationPatch returns the merge patch that sets one annotation.
func AnnotationPatch(name, value string) []byte {
	return patch(map[string]any{"metadata": map[string]any{"annotations": map[string]any{name: value}}})
}

// AnnotationPatchForUID returns the merge patch that sets one annotation. The API server refuses it if the object no longer has the given UID.
func AnnotationPatchForUID(uid, name, value string) []byte {
	return patch(map[string]any{"metadata": map[string]any{"uid": uid, "annotations": map[string]any{name: value}}})
}

func patch(value any) []byte {
	text, err := json.Marshal(value)
	if err != nil {
		panic("kube: a patch of strings and quantities cannot fail: " + err.Error())
	}
	return text
}
