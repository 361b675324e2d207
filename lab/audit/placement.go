package audit

import (
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/residency"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// boundPod is a pod that is bound to a node, with its request and the placement that the scheduler wrote.
type boundPod struct {
	checker   *checker
	node      *node
	pod       *v1.Pod
	request   share.Request
	known     bool // the request could be read
	placement kube.Placement
}

func (c *checker) checkUnbound(pod *v1.Pod) {
	if _, found := pod.Annotations[kube.AnnotationPlacement]; found {
		c.violate(Violation{Kind: Unbound, Pod: nameOf(pod)}, "the pod is not bound and has a placement")
	}
}

// checkPlacement checks the placement of a bound pod against its request, and adds the placed shares to the slices. The pod holds what its
// placement says, even if the request differs.
func (c *checker) checkPlacement(n *node, pod *v1.Pod) {
	request, asks, err := kube.RequestOf(pod)
	k := &boundPod{checker: c, node: n, pod: pod, request: request, known: err == nil}
	text, placed := pod.Annotations[kube.AnnotationPlacement]
	if err != nil {
		k.violate(BadRequest, "", "%v", err)
	}
	switch {
	case placed && k.readPlacement(text):
		k.compareContainers()
		k.addToSlices()
	case asks || placed:
		n.doubtful = true
	}
	if asks && !placed {
		k.violate(Unplaced, "", "the pod asks for GPUs and has no placement")
	}
}

// readPlacement decodes the placement and reports whether it names this pod and its node.
func (k *boundPod) readPlacement(text string) bool {
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

func (k *boundPod) violate(kind Kind, slice, format string, args ...any) {
	v := Violation{Kind: kind, Node: k.pod.Spec.NodeName, Slice: slice, Pod: nameOf(k.pod)}
	k.checker.violate(v, format, args...)
}

// compareContainers checks that the placement has the containers of the request and no others.
func (k *boundPod) compareContainers() {
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

func (k *boundPod) compareContainer(asked share.Container, vgpus []kube.PlacedVGPU) {
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

// classesFor returns the isolation classes acceptable for a share. If the pod requests none by name, it returns those that serve the share
// with the least waste: a limit above the request needs an elastic slice, and only a share of a whole slice justifies exclusive use.
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

// addToSlices adds the placed shares of the pod to their slices. A share on a slice that no longer exists is reported as an orphan instead.
func (k *boundPod) addToSlices() {
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
			s.add(k.heldShareOf(c.Name, i, v))
		}
	}
}

func (k *boundPod) heldShareOf(container string, vgpu int, v kube.PlacedVGPU) heldShare {
	return heldShare{
		pod: nameOf(k.pod), tenant: k.pod.Namespace, container: container, vgpu: vgpu,
		packing: k.placement.Model, class: v.Class, share: k.counted(v), weights: k.placement.Weights,
		antiAffinity: k.placement.AntiAffinity,
	}
}

// counted returns how much of a placed share counts on its slice. If its pod has given up the SM-time and is not meant to get it back, only the memory
// counts. A share of class swap counts in full, because it holds the memory in turn with others.
func (k *boundPod) counted(v kube.PlacedVGPU) share.Share {
	s := v.Share
	if v.Class == share.Swap {
		return s
	}
	wanted, reached, err := kube.ResidencyOf(k.pod)
	started, stays := reached.Level != residency.Cold, wanted.Level != residency.Cold
	if err == nil && started && stays && wanted.Level < residency.Hot && reached.Level < residency.Hot {
		return share.Share{Memory: s.Memory}
	}
	return s
}

// checkSlice checks that a slice has the kind and GPU model that the pod accepts and can enforce the isolation class. It does not check
// health, because a device that becomes unhealthy keeps its pods.
func (k *boundPod) checkSlice(s *slice, container string, class share.Isolation) {
	if !k.known {
		return
	}
	kind := kindFor(&k.request, container)
	if !s.ofKind(kind) || !s.ofModel(k.request.Models) {
		k.violate(WrongDevice, s.ID, "container %s: the slice is %s %s, the pod accepts %s of %v",
			container, s.Model, s.Profile, kind, k.request.Models)
	}
	if len(k.placement.Weights) > 0 && !s.Store {
		k.violate(WrongDevice, s.ID, "container %s: the pod declares weights, and the slice has no model store", container)
	}
	if !s.enforces(class, k.request.Enforcement) {
		k.violate(NotEnforceable, s.ID, "container %s: the node offers %v here, not %s", container, s.Classes, class)
	}
}

// kindFor returns the kind of slice that the named container asks for: its own if it names one, otherwise that of the pod.
func kindFor(r *share.Request, container string) string {
	for _, c := range r.Containers {
		if c.Name == container && c.Slice != "" {
			return c.Slice
		}
	}
	return r.Slice
}

// ofKind reports whether the slice is of the requested kind: a whole GPU, any MIG instance, or the name of a MIG profile.
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

// ofModel reports whether the GPU is of an accepted model. An empty list accepts every model.
func (s *slice) ofModel(models []string) bool {
	return len(models) == 0 || slices.Contains(models, s.Model)
}

func (s *slice) enforces(class share.Isolation, e share.Enforcement) bool {
	return e == share.BestEffortEnforcement || slices.Contains(s.Classes, class)
}
