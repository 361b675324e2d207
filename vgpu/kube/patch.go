package kube

import (
	"encoding/json"

	v1 "k8s.io/api/core/v1"
)

// CapacityPatch returns the merge patch that sets a node's capacity and allocatable resources, or nil if they are right already. If keep is
// set, a larger capacity is left: the kubelet admits its pods again when it restarts, and fails those that no longer fit. gshare/vgpu is
// left out, as the kubelet writes it.
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

// RemoveCapacityPatch returns the merge patch that removes gshare's resources from the status of a node, or nil if there are none.
// gshare/vgpu is left until the kubelet reports zero, as the kubelet would write it again; it does so for five minutes after a device
// plugin has ended.
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

// AnnotationPatchForUID returns the merge patch that sets one annotation, and that the API server refuses if the object no longer has this
// UID.
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
