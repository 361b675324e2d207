// Package deviceplugin implements the kubelet's device plugin API, v1beta1, for gshare/vgpu: sockets and messages. The Node decides
// the answers.
package deviceplugin

import (
	"context"
	"slices"

	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// Node decides the answers to the kubelet's device plugin calls for gshare/vgpu. A ticket is a device ID of that resource.
type Node interface {
	// Tickets returns all tickets, and a channel that is closed when they have changed.
	Tickets() (tickets []string, changed <-chan struct{})
	// Prefer returns n of the available tickets, with must among them. The kubelet may choose others.
	Prefer(ctx context.Context, available, must []string, n int) []string
	// Allocate returns the CDI device name of the tickets, whose file is written later by PreStart. It must not block: the kubelet's
	// main loop waits for it.
	Allocate(tickets []string) string
	// PreStart grants the container that holds the tickets, and is about to be created, its share. After an error the kubelet retries.
	PreStart(ctx context.Context, tickets []string) error
}

// service implements the kubelet's device plugin API on one socket.
type service struct {
	api.UnimplementedDevicePluginServer
	node     Node
	watching chan struct{} // receives when the kubelet begins to watch
	lost     chan struct{} // receives when it has ceased to
}

func newService(node Node) *service {
	return &service{node: node, watching: make(chan struct{}, 1), lost: make(chan struct{}, 1)}
}

// signal sends to a channel with a buffer of one, unless the buffer is full. It never blocks.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func (s *service) GetDevicePluginOptions(context.Context, *api.Empty) (*api.DevicePluginOptions, error) {
	return &api.DevicePluginOptions{PreStartRequired: true, GetPreferredAllocationAvailable: true}, nil
}

// ListAndWatch sends the device IDs to the kubelet, and again whenever they change. It always reports them as healthy: the health of slices
// is in the node's inventory, where a change does not fail running pods.
func (s *service) ListAndWatch(_ *api.Empty, stream api.DevicePlugin_ListAndWatchServer) error {
	signal(s.watching)
	defer signal(s.lost)
	for {
		tickets, changed := s.node.Tickets()
		if err := stream.Send(message(tickets)); err != nil {
			return err
		}
		select {
		case <-changed:
		case <-stream.Context().Done():
			return nil
		}
	}
}

func message(tickets []string) *api.ListAndWatchResponse {
	m := &api.ListAndWatchResponse{}
	for _, id := range tickets {
		m.Devices = append(m.Devices, &api.Device{ID: id, Health: api.Healthy})
	}
	return m
}

func (s *service) GetPreferredAllocation(ctx context.Context, r *api.PreferredAllocationRequest) (*api.PreferredAllocationResponse, error) {
	answer := &api.PreferredAllocationResponse{}
	for _, c := range r.ContainerRequests {
		slices.Sort(c.AvailableDeviceIDs)
		answer.ContainerResponses = append(answer.ContainerResponses, &api.ContainerPreferredAllocationResponse{
			DeviceIDs: s.node.Prefer(ctx, c.AvailableDeviceIDs, c.MustIncludeDeviceIDs, int(c.AllocationSize)),
		})
	}
	return answer, nil
}

func (s *service) Allocate(_ context.Context, r *api.AllocateRequest) (*api.AllocateResponse, error) {
	answer := &api.AllocateResponse{}
	for _, c := range r.ContainerRequests {
		answer.ContainerResponses = append(answer.ContainerResponses, &api.ContainerAllocateResponse{
			CdiDevices: []*api.CDIDevice{{Name: s.node.Allocate(c.DevicesIds)}},
		})
	}
	return answer, nil
}

func (s *service) PreStartContainer(ctx context.Context, r *api.PreStartContainerRequest) (*api.PreStartContainerResponse, error) {
	return &api.PreStartContainerResponse{}, s.node.PreStart(ctx, r.DevicesIds)
}
