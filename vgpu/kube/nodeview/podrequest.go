package nodeview

import (
	v1 "k8s.io/api/core/v1"
	resource "k8s.io/component-helpers/resource"

	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/packing"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// PodRequest holds the decoded share request and placement of one version of a pod.
type PodRequest struct {
	Pod          packing.Pod
	Asks         bool  // the pod requests a resource of gshare, even if RequestErr is set
	RequestErr   error // why the request is invalid; the text of an event
	Placement    kube.Placement
	Placed       bool // the pod has a placement, even if PlacementErr is set
	PlacementErr error
}

// PodRequestOf decodes the share request and the placement of a pod. Errors are returned in the fields of the result.
func PodRequestOf(pod *v1.Pod) *PodRequest {
	s := &PodRequest{}
	var request share.Request
	request, s.Asks, s.RequestErr = kube.RequestOf(pod)
	s.Placement, s.Placed, s.PlacementErr = kube.PlacementOf(pod)
	if s.RequestErr == nil && !s.Placed {
		s.RequestErr = request.ValidateDevices()
	}
	s.Pod = packing.Pod{Tenant: pod.Namespace, Request: request}
	if s.Placed && s.PlacementErr == nil && s.Asks && s.RequestErr == nil && !kube.Satisfies(s.Placement, request) {
		s.PlacementErr = ErrPlacement
	}
	requests := resource.PodRequests(pod, resource.PodResourcesOptions{})
	s.Pod.CPU = packing.MilliCPU(requests.Cpu().MilliValue())
	s.Pod.RAM = share.Bytes(requests.Memory().Value())
	return s
}
