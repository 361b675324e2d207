package nodeview

import (
	v1 "k8s.io/api/core/v1"
	resource "k8s.io/component-helpers/resource"

	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/packing"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// Statement is what the contracts say of one version of a pod.
type Statement struct {
	Pod        packing.Pod
	Asks       bool  // for a resource of gshare, even where RequestErr refuses it
	RequestErr error // of a share that makes no sense; text for an event
	Placement  kube.Placement
	Placed     bool // there is a placement, even where PlaceErr refuses it
	PlaceErr   error
}

// Read decodes a pod.
func Read(pod *v1.Pod) *Statement {
	s := &Statement{}
	var request share.Request
	request, s.Asks, s.RequestErr = kube.RequestOf(pod)
	s.Placement, s.Placed, s.PlaceErr = kube.PlacementOf(pod)
	if s.RequestErr == nil && !s.Placed {
		s.RequestErr = request.Attachable()
	}
	s.Pod = packing.Pod{Tenant: pod.Namespace, Request: request}
	if s.Placed && s.PlaceErr == nil && s.Asks && s.RequestErr == nil && !kube.Grants(s.Placement, request) {
		s.PlaceErr = ErrPlacement
	}
	requests := resource.PodRequests(pod, resource.PodResourcesOptions{})
	s.Pod.CPU = packing.MilliCPU(requests.Cpu().MilliValue())
	s.Pod.RAM = share.Bytes(requests.Memory().Value())
	return s
}
