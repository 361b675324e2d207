// Package deviceplugin speaks the kubelet's device plugin protocol, v1beta1, for gshare/vgpu. It knows sockets and messages;
// what the answers are is for the Node behind it.
package deviceplugin

import (
	"context"
	"slices"

	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// Node answers for the tickets of one node.
type Node interface {
	// Tickets lists all tickets; the channel is closed when they have changed.
	Tickets() (tickets []string, changed <-chan struct{})
	// Prefer picks n of the available tickets, must among them. It is advice: the kubelet may do otherwise.
	Prefer(ctx context.Context, available, must []string, n int) []string
	// Allocate gives the CDI name behind which the owner of the tickets will find what it is granted. The kubelet's main loop
	// waits for it, so it does not wait for anything.
	Allocate(tickets []string) string
	// PreStart makes sure that what is behind the name is the grant of the container that holds the tickets and is about to be
	// created. After an error the kubelet asks again.
	PreStart(ctx context.Context, tickets []string) error
}

// service answers the kubelet on one socket.
type service struct {
	api.UnimplementedDevicePluginServer
	node     Node
	watching chan struct{} // gets one when the kubelet begins to watch
	lost     chan struct{} // gets one when it ends
}

func newService(node Node) *service {
	return &service{node: node, watching: make(chan struct{}, 1), lost: make(chan struct{}, 1)}
}

// say notes something that need be heard once only.
func say(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func (s *service) GetDevicePluginOptions(context.Context, *api.Empty) (*api.DevicePluginOptions, error) {
	return &api.DevicePluginOptions{PreStartRequired: true, GetPreferredAllocationAvailable: true}, nil
}

// ListAndWatch tells the tickets. All are healthy always: the health of devices is in the node's inventory, where it goes up
// and down without pods being failed for it.
func (s *service) ListAndWatch(_ *api.Empty, stream api.DevicePlugin_ListAndWatchServer) error {
	say(s.watching)
	defer say(s.lost)
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
