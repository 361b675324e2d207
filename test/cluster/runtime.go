package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// criClient returns a CRI client of the node's containerd, and a function that closes its connection.
func (n *Node) criClient() (client cri.RuntimeServiceClient, stop func(), err error) {
	connection, err := grpc.NewClient("unix://"+n.Machine.HostPath(ContainerdSocket), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, nil, err
	}
	return cri.NewRuntimeServiceClient(connection), func() { connection.Close() }, nil
}

// RemoveDeletedPods blocks until the node has no pod sandboxes. It removes stopped ones immediately; the kubelet would take up to a
// minute. Pods deleted without a grace period disappear from the API server before the node has stopped them.
func (n *Node) RemoveDeletedPods(ctx context.Context) error {
	runtime, stop, err := n.criClient()
	if err != nil {
		return err
	}
	defer stop()
	last := errors.New("not queried yet")
	err = wait.PollUntilContextCancel(ctx, pollInterval, true, func(ctx context.Context) (bool, error) {
		var left int
		left, last = removeStoppedSandboxes(ctx, runtime)
		return last == nil && left == 0, nil
	})
	if err != nil {
		return fmt.Errorf("remove deleted pods of %s: %w; last: %v", n.Name, err, last)
	}
	return nil
}

// removeStoppedSandboxes removes the stopped pod sandboxes of a node, and returns how many sandboxes there were in any state.
func removeStoppedSandboxes(ctx context.Context, runtime cri.RuntimeServiceClient) (left int, err error) {
	list, err := runtime.ListPodSandbox(ctx, &cri.ListPodSandboxRequest{})
	if err != nil {
		return 0, err
	}
	for _, sandbox := range list.Items {
		if sandbox.State == cri.PodSandboxState_SANDBOX_NOTREADY {
			_, err = runtime.RemovePodSandbox(ctx, &cri.RemovePodSandboxRequest{PodSandboxId: sandbox.Id})
		}
		if err != nil {
			return 0, err
		}
	}
	return len(list.Items), nil
}

// Exec runs a command in a running container of a pod and returns its standard output. An error includes its standard error. It uses
// containerd directly, so it works while the kubelet or the API server is down.
func (n *Node) Exec(ctx context.Context, pod *corev1.Pod, container string, command ...string) ([]byte, error) {
	id, err := containerID(pod, container)
	if err != nil {
		return nil, err
	}
	runtime, stop, err := n.criClient()
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
