package verdict

import (
	"errors"
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/gshare-dev/gshare/vgpu/kube/nodeview"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// requestLines returns a line for each container of the pod with the shares that it requests.
func requestLines(s *nodeview.PodRequest) (lines []string) {
	for _, c := range s.Pod.Request.Containers {
		lines = append(lines, fmt.Sprintf("%s: %d vGPU of %s", c.Name, c.VGPUs, ShareText(c.Share)))
	}
	return lines
}

// ShareText formats the SMs, time and memory of a share, such as "24% SM, 40%-100% time, 8192 MiB".
func ShareText(s share.Share) string {
	return fmt.Sprintf("%s SM, %s time, %d MiB", span(s.SMRequest, s.SMLimit), span(s.QuotaRequest, s.QuotaLimit), s.Memory/share.MiB)
}

func span(request, limit share.PerMille) string {
	if request == limit {
		return request.Percent()
	}
	return request.Percent() + "-" + limit.Percent()
}

// fixForRequest returns advice on how to correct an invalid request, or an empty string if the error names no field.
func fixForRequest(err error) string {
	var field *share.FieldError
	if !errors.As(err, &field) {
		return ""
	}
	if field.Field == share.FieldVGPU {
		return "set gshare/vgpu in the limits, or install the policies of manifests/admission, which fill it in; then create the pod again"
	}
	return "correct " + field.Field + " and create the pod again"
}

// insteadOfNVIDIA returns a phrase for the advice to a pod that requests GPUs by a resource of nvidia.com instead, else an empty string.
func insteadOfNVIDIA(pod *v1.Pod) string {
	for _, c := range pod.Spec.Containers {
		for name := range c.Resources.Limits {
			if strings.HasPrefix(string(name), "nvidia.com/") {
				return ", instead of " + string(name)
			}
		}
	}
	return ""
}

// statusMessages returns the messages that the scheduler, the kubelet and the container runtime have left in the pod's status.
func statusMessages(pod *v1.Pod) (lines []string) {
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
