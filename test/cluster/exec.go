package cluster

import (
	"bytes"
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Exec runs a command in a running container of the pod and returns its standard output. It asks containerd, so it
// works while the kubelet or the API server is down. The error has the command's standard error.
func (n *Node) Exec(ctx context.Context, pod *corev1.Pod, container string, command ...string) ([]byte, error) {
	id, err := containerID(pod, container)
	if err != nil {
		return nil, err
	}
	runtime, stop, err := n.runtime()
	if err != nil {
		return nil, err
	}
	defer stop()
	response, err := runtime.ExecSync(ctx, &cri.ExecSyncRequest{ContainerId: id, Cmd: command})
	if err != nil {
		return nil, fmt.Errorf("run %q in %s: %w", command, pod.Name, err)
	}
	if response.ExitCode != 0 {
		return response.Stdout, fmt.Errorf("run %q in %s: exit status %d: %s", command, pod.Name, response.ExitCode, bytes.TrimSpace(response.Stderr))
	}
	return response.Stdout, nil
}

func containerID(pod *corev1.Pod, name string) (string, error) {
	for _, status := range pod.Status.ContainerStatuses {
		if id, ok := strings.CutPrefix(status.ContainerID, "containerd://"); ok && status.Name == name {
			return id, nil
		}
	}
	return "", fmt.Errorf("pod %s has no container %s that has run", pod.Name, name)
}
