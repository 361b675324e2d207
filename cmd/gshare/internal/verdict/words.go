package verdict

import (
	"errors"
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/gshare-dev/gshare/vgpu/kube/nodeview"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// asks returns the shares that a pod requests, as text.
func asks(s *nodeview.PodRequest) (lines []string) {
	for _, c := range s.Pod.Request.Containers {
		lines = append(lines, fmt.Sprintf("%s: %d vGPU of %s", c.Name, c.VGPUs, Share(c.Share)))
	}
	return lines
}

// Share writes a share as people read it.
func Share(s share.Share) string {
	return fmt.Sprintf("%s SM, %s time, %d MiB", span(s.SMRequest, s.SMLimit), span(s.QuotaRequest, s.QuotaLimit), s.Memory/share.MiB)
}

func span(request, limit share.PerMille) string {
	if request == limit {
		return request.Percent()
	}
	return request.Percent() + "-" + limit.Percent()
}

// fixOf returns what to write instead.
func fixOf(err error) string {
	var field *share.FieldError
	if !errors.As(err, &field) {
		return ""
	}
	if field.Field == share.FieldVGPU {
		return "set gshare/vgpu in the limits, or install the policies of manifests/admission, which fill it in; then create the pod anew"
	}
	return "correct " + field.Field + " and create the pod anew"
}

// insteadOf notices GPUs that are asked for otherwise.
func insteadOf(pod *v1.Pod) string {
	for _, c := range pod.Spec.Containers {
		for name := range c.Resources.Limits {
			if strings.HasPrefix(string(name), "nvidia.com/") {
				return ", instead of " + string(name)
			}
		}
	}
	return ""
}

// said gathers what others wrote on the pod's status.
func said(pod *v1.Pod) (lines []string) {
	for _, c := range pod.Status.Conditions {
		if c.Type == v1.PodScheduled && c.Status != v1.ConditionTrue && c.Message != "" {
			lines = append(lines, "scheduler: "+c.Message)
		}
	}
	if pod.Status.Message != "" {
		lines = append(lines, "kubelet: "+pod.Status.Reason+": "+pod.Status.Message)
	}
	for _, list := range [][]v1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
		for _, c := range list {
			if w := c.State.Waiting; w != nil && w.Message != "" {
				lines = append(lines, "container "+c.Name+": "+w.Reason+": "+w.Message)
			}
		}
	}
	return lines
}
