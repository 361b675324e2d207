package cluster

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"k8s.io/apimachinery/pkg/util/wait"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// runtime asks containerd as the kubelet does, until stop is called.
func (n *Node) runtime() (client cri.RuntimeServiceClient, stop func(), err error) {
	connection, err := grpc.NewClient("unix://"+n.Machine.Path(ContainerdSocket), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, nil, err
	}
	return cri.NewRuntimeServiceClient(connection), func() { connection.Close() }, nil
}

// Sweep returns when nothing is left to do about pods that have been deleted. A pod that is deleted without grace is gone from
// the API server at once, and the node takes its time to end it; what has ended would be removed within a minute.
func (n *Node) Sweep(ctx context.Context) error {
	runtime, stop, err := n.runtime()
	if err != nil {
		return err
	}
	defer stop()
	last := errors.New("not asked yet")
	err = wait.PollUntilContextCancel(ctx, pollInterval, true, func(ctx context.Context) (bool, error) {
		var left int
		left, last = removeEnded(ctx, runtime)
		return last == nil && left == 0, nil
	})
	if err != nil {
		return fmt.Errorf("sweep %s: %w; last: %v", n.Name, err, last)
	}
	return nil
}

// removeEnded removes the sandboxes that the kubelet has stopped, and returns the number of sandboxes of any state.
func removeEnded(ctx context.Context, runtime cri.RuntimeServiceClient) (left int, err error) {
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
