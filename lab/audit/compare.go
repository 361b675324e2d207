package audit

import (
	"slices"

	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// compare checks that the placement has just the containers of the request.
func (k *claim) compare() {
	if !k.known {
		return
	}
	for _, asked := range k.request.Containers {
		i := slices.IndexFunc(k.placement.Containers, func(p kube.PlacedContainer) bool { return p.Name == asked.Name })
		if i < 0 {
			k.violate(MissingContainer, "", "container %s asks for GPUs and is not placed", asked.Name)
			continue
		}
		k.compareContainer(asked, k.placement.Containers[i].VGPUs)
	}
	for _, placed := range k.placement.Containers {
		if !slices.ContainsFunc(k.request.Containers, func(c share.Container) bool { return c.Name == placed.Name }) {
			k.violate(ExtraContainer, "", "container %s is placed and asks for nothing", placed.Name)
		}
	}
}

func (k *claim) compareContainer(asked share.Container, vgpus []kube.PlacedVGPU) {
	if len(vgpus) != asked.VGPUs {
		k.violate(WrongCount, "", "container %s has %d vGPUs and asks for %d", asked.Name, len(vgpus), asked.VGPUs)
	}
	for i, v := range vgpus {
		if v.Share != asked.Share || v.Priority != k.request.Priority {
			k.violate(WrongShare, v.Slice, "container %s, vGPU %d: %v (%s) was placed, %v (%s) is asked for",
				asked.Name, i, v.Share, v.Priority, asked.Share, k.request.Priority)
		}
		if !slices.Contains(classesFor(asked.Share, k.request.Isolation), v.Class) {
			k.violate(WrongClass, v.Slice, "container %s, vGPU %d: class %s is not one that the pod accepts", asked.Name, i, v.Class)
		}
	}
}

// classesFor returns the isolation classes acceptable for a share. If none is requested by name, it is the class that serves the
// share and wastes least: moving SMs need an elastic slice, and only a whole slice justifies exclusive use.
func classesFor(s share.Share, wanted share.Isolation) []share.Isolation {
	switch {
	case wanted != share.AnyIsolation:
		return []share.Isolation{wanted}
	case s.SMRequest < s.SMLimit:
		return []share.Isolation{share.Elastic}
	case s.RequestArea() == share.WholeArea:
		return []share.Isolation{share.Exclusive, share.MPS}
	}
	return []share.Isolation{share.MPS}
}
