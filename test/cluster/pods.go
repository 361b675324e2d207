package cluster

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
)

const pollInterval = 50 * time.Millisecond

// Pod returns a pod in the default namespace for gshare's scheduler. Its container "main" runs a command in the busybox image. It has no
// termination grace period.
func Pod(name string, command ...string) *corev1.Pod {
	no, grace := false, int64(0)
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: metav1.NamespaceDefault},
		Spec: corev1.PodSpec{
			SchedulerName:                 "gshare",
			AutomountServiceAccountToken:  &no,
			TerminationGracePeriodSeconds: &grace,
			Containers: []corev1.Container{{
				Name: "main", Image: BusyboxImage, ImagePullPolicy: corev1.PullNever, Command: command,
			}},
		},
	}
}

// WaitPod blocks until a pod of the default namespace satisfies a condition, and returns the pod.
func (c *Cluster) WaitPod(ctx context.Context, name string, wanted func(*corev1.Pod) bool) (*corev1.Pod, error) {
	var pod *corev1.Pod
	var last error
	seen := func(ctx context.Context) (bool, error) {
		pod, last = c.client.CoreV1().Pods(metav1.NamespaceDefault).Get(ctx, name, metav1.GetOptions{})
		return last == nil && wanted(pod), nil // the API server may be down
	}
	if err := wait.PollUntilContextCancel(ctx, pollInterval, true, seen); err != nil {
		return nil, fmt.Errorf("wait for pod %s: %w; last: %v, %s", name, err, last, podSummary(pod))
	}
	return pod, nil
}

// podSummary returns the status of a pod for an error message.
func podSummary(pod *corev1.Pod) string {
	if pod == nil {
		return "nothing"
	}
	return fmt.Sprintf("%s on %q: %s %s %+v", pod.Status.Phase, pod.Spec.NodeName, pod.Status.Reason, pod.Status.Message, pod.Status.ContainerStatuses)
}

// IsRunning reports whether all containers of a pod are running. It is a condition for WaitPod.
func IsRunning(pod *corev1.Pod) bool {
	for _, status := range pod.Status.ContainerStatuses {
		if status.State.Running == nil {
			return false
		}
	}
	return pod.Status.Phase == corev1.PodRunning && len(pod.Status.ContainerStatuses) == len(pod.Spec.Containers)
}
