package kube

import (
	"encoding/json"

	v1 "k8s.io/api/core/v1"
)

// CapacityPatch returns the merge patch that sets a node's capacity and allocatable resources, or nil if they are right already.
// Capacity that is larger is left if keep is set: the kubelet admits its pods again when it restarts, and fails those that no longer
// fit. gshare/vgpu is the kubelet's own to write.
func CapacityPatch(node *v1.Node, has v1.ResourceList, keep bool) []byte {
	want := v1.ResourceList{}
	for name, q := range has {
		if name == ResourceVGPU {
			continue
		}
		if old := node.Status.Capacity[name]; keep && old.Cmp(q) > 0 {
			q = old
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

// NoCapacityPatch returns the merge patch that takes gshare's resources off the status of a node; nil where there are none. What the
// kubelet counts stays until it counts none: it would write it again. It goes on counting five minutes after a plugin has ended.
func NoCapacityPatch(node *v1.Node) []byte {
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

// ForgetPatch returns the merge patch that takes one annotation away.
func ForgetPatch(name string) []byte {
	return patch(map[string]any{"metadata": map[string]any{"annotations": map[string]any{name: nil}}})
}

// AnnotationPatch returns the merge patch that writes one annotation.
func AnnotationPatch(name, value string) []byte {
	return patch(map[string]any{"metadata": map[string]any{"annotations": map[string]any{name: value}}})
}

// OwnedPatch is AnnotationPatch for an object that still has this UID.
func OwnedPatch(uid, name, value string) []byte {
	return patch(map[string]any{"metadata": map[string]any{"uid": uid, "annotations": map[string]any{name: value}}})
}

func patch(value any) []byte {
	text, err := json.Marshal(value)
	if err != nil {
		panic("kube: a patch of strings and quantities cannot fail: " + err.Error())
	}
	return text
}
