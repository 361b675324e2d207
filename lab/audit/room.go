package audit

import (
	"slices"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// canHost reports whether the slices of the node can take all containers of the pod together.
func (f *finalState) canHost(n *node, a *pendingPod) bool {
	if len(a.request.Containers) == 0 {
		return true
	}
	if n.doubtful {
		return false
	}
	for c := range a.request.Containers {
		if !f.enoughDevices(n.slices, a, c) {
			return false
		}
	}
	// The vGPUs of one container are on different devices and cannot be in each other's way.
	return len(a.request.Containers) == 1 || newSearch(f, n, a).placeContainer(0)
}

// enoughDevices reports whether container c finds as many devices that admit its share as it has vGPUs.
func (f *finalState) enoughDevices(on []*slice, a *pendingPod, c int) bool {
	var found []string
	for _, s := range on {
		if len(found) == a.request.Containers[c].VGPUs {
			return true
		}
		if slices.Contains(found, s.Device) {
			continue
		}
		if _, ok := f.admits(s, a, c); ok {
			found = append(found, s.Device)
		}
	}
	return len(found) == a.request.Containers[c].VGPUs
}

// admits reports whether the slice can take one more share, that of container c of the pod, and returns its isolation class.
func (f *finalState) admits(s *slice, a *pendingPod, c int) (share.Isolation, bool) {
	sh := a.request.Containers[c].Share
	if !s.Healthy || !s.ofKind(a.request.Slice) || !s.ofModel(a.request.Models) || !f.sumsAllow(s, sh) {
		return "", false
	}
	for _, class := range a.classes[c] {
		if s.enforces(class, a.request.Enforcement) && f.isCompatible(s, a, class) {
			return class, f.fitsBeside(s, sh, a.packing)
		}
	}
	return "", false
}

func (f *finalState) sumsAllow(s *slice, sh share.Share) bool {
	return len(s.held) < s.MaxShares &&
		s.memory+sh.Memory <= s.capacity() &&
		s.limits+sh.LimitArea() <= f.options.limitBound() &&
		s.requested+sh.RequestArea() <= share.WholeArea
}

// isCompatible reports whether the pod may share the slice with the pods on it: by isolation class, packing model and namespace.
func (f *finalState) isCompatible(s *slice, a *pendingPod, class share.Isolation) bool {
	for i := range s.held {
		h := &s.held[i]
		if h.class != class || class == share.Exclusive || h.packing != a.packing {
			return false
		}
		if h.tenant != a.pod.Namespace && !f.options.MixTenants {
			return false
		}
	}
	return true
}
