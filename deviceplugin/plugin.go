// Package deviceplugin implements the kubelet's device plugin API, v1beta1, for gshare/vgpu: its sockets and messages. A Node decides the
// answers.
package deviceplugin

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// Plugin registers a device plugin with the kubelet and serves its calls.
type Plugin struct {
	Directory string // the kubelet's directory for device plugins
	Resource  string
	Node      Node
	Log       *slog.Logger
	// Registered is called with true when the kubelet begins to watch the plugin, and with false when it stops watching.
	Registered func(bool)
	// Await, unless it is nil, blocks until the plugin may register or the context ends. It is called before each registration.
	Await func(context.Context)
}

// retryEvery is the pause between attempts to register while the kubelet is away, and watchTimeout is how long the kubelet may take to begin
// to watch. A kubelet that restarts fails pods that are bound but not running unless the plugin is registered by then, so the pause is
// short.
const (
	retryEvery   = 100 * time.Millisecond
	watchTimeout = 10 * time.Second
	// lastCalls is how long an ending plugin still serves after it has ended ListAndWatch. The end of that call makes the kubelet turn to
	// another plugin of the resource, if one is registered.
	lastCalls = 100 * time.Millisecond
	// drainTimeout is how long calls that have begun by then may still take: the kubelet fails a pod whose Allocate is cut off.
	drainTimeout = 2 * time.Second
)

// kubeletSocket is the name of the socket on which the kubelet accepts registrations.
const kubeletSocket = "kubelet.sock"

// Run registers with the kubelet and serves its calls until the context ends. It registers again whenever the kubelet's ListAndWatch call
// ends, which is the only reliable sign that the kubelet has restarted.
func (p *Plugin) Run(ctx context.Context) {
	logged := ""
	for ctx.Err() == nil {
		if p.Await != nil {
			p.Await(ctx)
		}
		if ctx.Err() != nil {
			return
		}
		err := p.serve(ctx)
		if err != nil && ctx.Err() == nil && err.Error() != logged {
			p.Log.Warn("failed to register with the kubelet", "error", err) // logged once for each error
			logged = err.Error()
		}
		if err == nil {
			logged = ""
		}
		select {
		case <-ctx.Done():
		case <-time.After(retryEvery):
		}
	}
}

// serve registers once and serves until the kubelet stops watching or the context ends. It uses a new socket each time, since the kubelet
// refuses a socket to which it believes it is still connected.
func (p *Plugin) serve(ctx context.Context) error {
	if _, err := os.Stat(filepath.Join(p.Directory, kubeletSocket)); err != nil {
		return fmt.Errorf("find socket of kubelet: %w", err)
	}
	name := "gshare-" + strings.ToLower(rand.Text()[:8]) + ".sock"
	listener, err := net.Listen("unix", filepath.Join(p.Directory, name))
	if err != nil {
		return err
	}
	service := newService(p.Node)
	server := grpc.NewServer(grpc.UnaryInterceptor(logCalls(p.Log)))
	api.RegisterDevicePluginServer(server, service)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	defer func() {
		server.Stop() // removes the socket
		<-served
	}()
	listed, forget := p.whileListed(ctx, name)
	defer forget()
	if err := p.register(listed, name); err != nil {
		return err
	}
	if err := await(listed, service.watching, watchTimeout); err != nil {
		return err
	}
	forget()
	p.Log.Info("registered with kubelet", "resource", p.Resource)
	p.Registered(true)
	defer p.Registered(false)
	select {
	case <-ctx.Done():
		close(service.ending)
		time.Sleep(lastCalls)
		timeout := time.AfterFunc(drainTimeout, server.Stop)
		defer timeout.Stop()
		server.GracefulStop()
	case <-service.lost:
	}
	return nil
}

var errSwept = errors.New("the kubelet has removed the socket of the plugin")

// whileListed returns a context that ends when the named socket is deleted. A kubelet that starts deletes the sockets of all plugins; a
// kubelet that is told of a deleted socket would try to connect to it for ten seconds.
func (p *Plugin) whileListed(ctx context.Context, name string) (context.Context, context.CancelFunc) {
	listed, end := context.WithCancelCause(ctx)
	socket := filepath.Join(p.Directory, name)
	go func() {
		look := time.NewTicker(retryEvery)
		defer look.Stop()
		for listed.Err() == nil {
			if _, err := os.Stat(socket); err != nil {
				end(errSwept)
			}
			select {
			case <-listed.Done():
			case <-look.C:
			}
		}
	}()
	return listed, func() { end(context.Canceled) }
}

// await blocks until the channel receives, which means that the kubelet watches the plugin. It returns an error if the context ends, or if
// that takes longer than patience.
func await(ctx context.Context, c <-chan struct{}, patience time.Duration) error {
	select {
	case <-c:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(patience):
		return errors.New("the kubelet registered the plugin but does not watch it")
	}
}

func (p *Plugin) register(ctx context.Context, name string) error {
	conn, err := grpc.NewClient("unix://"+filepath.Join(p.Directory, kubeletSocket), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, watchTimeout)
	defer cancel()
	_, err = api.NewRegistrationClient(conn).Register(ctx, &api.RegisterRequest{
		Version: api.Version, Endpoint: name, ResourceName: p.Resource,
		Options: &api.DevicePluginOptions{PreStartRequired: true, GetPreferredAllocationAvailable: true},
	})
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// Sweep removes sockets of gshare's plugins on which nobody listens any more.
func (p *Plugin) Sweep() error {
	left, err := filepath.Glob(filepath.Join(p.Directory, "gshare-*.sock"))
	for _, socket := range left {
		if conn, dialErr := net.Dial("unix", socket); dialErr == nil {
			conn.Close()
			continue
		}
		err = errors.Join(err, os.Remove(socket))
	}
	return err
}

// Node decides the answers to the kubelet's device plugin calls for gshare/vgpu. A device ID is a device ID of that resource.
type Node interface {
	// DeviceIDs returns all device IDs, and a channel that is closed when they have changed.
	DeviceIDs() (deviceIDs []string, changed <-chan struct{})
	// Prefer returns n of the available device IDs, with must among them. The kubelet may choose others.
	Prefer(ctx context.Context, available, must []string, n int) []string
	// Allocate returns the CDI device name for the device IDs. The file for that name is written later, by PreStart. Allocate must not block:
	// the kubelet's main loop waits for it.
	Allocate(deviceIDs []string) string
	// PreStart grants the container that holds the device IDs its share, just before the container is created. After an error the kubelet
	// retries.
	PreStart(ctx context.Context, deviceIDs []string) error
}

// service implements the kubelet's device plugin API on one socket.
type service struct {
	api.UnimplementedDevicePluginServer
	node     Node
	watching chan struct{} // receives when the kubelet begins to watch
	lost     chan struct{} // receives when the kubelet stops watching
	ending   chan struct{} // closed to end ListAndWatch
}

func newService(node Node) *service {
	return &service{node: node, watching: make(chan struct{}, 1), lost: make(chan struct{}, 1), ending: make(chan struct{})}
}

// logCalls logs each call of the kubelet, or of a proxy, with its answer.
func logCalls(log *slog.Logger) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, request any, call *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
		began := time.Now()
		answer, err := handle(ctx, request)
		log.Debug("call", "method", call.FullMethod, "request", request, "answer", answer, "took", time.Since(began), "error", err)
		return answer, err
	}
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

// ListAndWatch sends the device IDs to the kubelet, and sends them again whenever they change. It always reports them as healthy: the health
// of slices is in the node's inventory, where a change does not fail running pods.
func (s *service) ListAndWatch(_ *api.Empty, stream api.DevicePlugin_ListAndWatchServer) error {
	signal(s.watching)
	defer signal(s.lost)
	for {
		deviceIDs, changed := s.node.DeviceIDs()
		if err := stream.Send(message(deviceIDs)); err != nil {
			return err
		}
		select {
		case <-changed:
		case <-s.ending:
			return nil
		case <-stream.Context().Done():
			return nil
		}
	}
}

func message(deviceIDs []string) *api.ListAndWatchResponse {
	m := &api.ListAndWatchResponse{}
	for _, id := range deviceIDs {
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
