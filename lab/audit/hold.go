package audit

import (
	"slices"

	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// hold adds the placement to the slices. A share on a slice that no longer exists is an orphan and is not added.
func (k *claim) hold() {
	for _, c := range k.placement.Containers {
		devices := map[string]bool{}
		for i, v := range c.VGPUs {
			s := k.node.byID[v.Slice]
			if s == nil {
				k.checker.orphan(k.pod, v.Slice, "container "+c.Name+": the slice is not in the node's inventory")
				continue
			}
			if devices[s.Device] {
				k.violate(SameDevice, s.ID, "container %s has two vGPUs on device %s", c.Name, s.Device)
			}
			devices[s.Device] = true
			k.checkSlice(s, c.Name, v.Class)
			s.add(k.held(c.Name, i, v))
		}
	}
}

func (k *claim) held(container string, vgpu int, v kube.PlacedVGPU) held {
	return held{
		pod: nameOf(k.pod), tenant: k.pod.Namespace, container: container, vgpu: vgpu,
		packing: k.placement.Model, class: v.Class, share: v.Share,
	}
}

// checkSlice checks that the slice suits the terms of the pod and supports the class. Health is not checked: a device that becomes
// unhealthy keeps its pods.
func (k *claim) checkSlice(s *slice, container string, class share.Isolation) {
	if !k.known {
		return
	}
	if !s.ofKind(k.request.Slice) || !s.ofModel(k.request.Models) {
		k.violate(WrongDevice, s.ID, "container %s: the slice is %s %s, the pod accepts %s of %v",
			container, s.Model, s.Profile, k.request.Slice, k.request.Models)
	}
	if !s.enforces(class, k.request.Enforcement) {
		k.violate(NotEnforceable, s.ID, "container %s: the node offers %v here, not %s", container, s.Classes, class)
	}
}

// ofKind reports whether the slice is of the requested kind: a whole GPU, any MIG instance or one of a profile.
func (s *slice) ofKind(kind string) bool {
	whole := s.Profile == ""
	switch kind {
	case share.WholeGPU:
		return whole
	case share.AnyMIG:
		return !whole
	}
	return s.Profile == kind
}

// ofModel reports whether the device is of an accepted model; an empty list accepts every model.
func (s *slice) ofModel(models []string) bool {
	return len(models) == 0 || slices.Contains(models, s.Model)
}

func (s *slice) enforces(class share.Isolation, e share.Enforcement) bool {
	return e == share.BestEffortEnforcement || slices.Contains(s.Classes, class)
}
