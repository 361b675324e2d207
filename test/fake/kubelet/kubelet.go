// Package kubelet is a fake kubelet for tests: the device manager, podresources and the PodsAPI on real sockets, with the order of calls,
// the refusals and the races of the real one (v1.37).
package kubelet

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	plugin "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	resources "k8s.io/kubelet/pkg/apis/podresources/v1"
	podsapi "k8s.io/kubelet/pkg/apis/pods/v1alpha1"
)

// Kubelet is a fake kubelet. Its pods and allocated devices survive Kill and Start, as they do in the checkpoint of a real one. It has many
// fields: the state of the kubelet's device manager under one lock, and counters and faults for tests.
type Kubelet struct {
	Dir      string // where the sockets are
	Resource string

	Busy     atomic.Int64 // number of further calls of the local APIs to be refused with ResourceExhausted
	Starting atomic.Bool  // the PodsAPI refuses calls with FailedPrecondition
	Gets     atomic.Int64 // calls of podresources Get
	Lists    atomic.Int64 // calls of podresources List
	Hide     atomic.Bool  // podresources does not return gshare's devices yet

	mu        sync.Mutex // guards the fields below
	servers   []*grpc.Server
	endpoints map[string]plugin.DevicePluginClient // live ones, by socket
	latest    plugin.DevicePluginClient            // nil if none is registered; PreStart is then skipped
	conns     []*grpc.ClientConn
	devices   []string
	pods      map[types.UID]*v1.Pod
	held      map[holder][]string
	elsewhere map[holder][]*resources.ContainerDevices // allocated by other plugins
	watchers  map[chan struct{}]bool
	changed   chan struct{} // closed and replaced when devices or endpoints change
}

type holder struct {
	uid       types.UID
	container string
}

// New returns a kubelet that has not been started, for device plugins of the given resource. Its sockets are in dir.
func New(dir, resource string) *Kubelet {
	return &Kubelet{
		Dir: dir, Resource: resource, pods: map[types.UID]*v1.Pod{}, held: map[holder][]string{},
		elsewhere: map[holder][]*resources.ContainerDevices{},
		watchers:  map[chan struct{}]bool{}, changed: make(chan struct{}), endpoints: map[string]plugin.DevicePluginClient{},
	}
}

// DevicePlugins, PodResources and Pods return the directory of device plugins and the socket paths of the podresources and pods APIs.
func (k *Kubelet) DevicePlugins() string { return filepath.Join(k.Dir, "device-plugins") }
func (k *Kubelet) PodResources() string  { return filepath.Join(k.Dir, "podresources.sock") }
func (k *Kubelet) Pods() string          { return filepath.Join(k.Dir, "pods.sock") }

// Start removes the sockets of device plugins, as the real kubelet does, and serves the kubelet's APIs.
func (k *Kubelet) Start() error {
	if err := os.MkdirAll(k.DevicePlugins(), 0o755); err != nil {
		return err
	}
	old, err := filepath.Glob(filepath.Join(k.DevicePlugins(), "*"))
	for _, socket := range old {
		if e := os.Remove(socket); e != nil && !os.IsNotExist(e) { // a plugin may have removed its own
			err = errors.Join(err, e)
		}
	}
	if err != nil {
		return err
	}
	for _, s := range []struct {
		socket   string
		register func(*grpc.Server)
	}{
		{k.PodResources(), func(s *grpc.Server) { resources.RegisterPodResourcesListerServer(s, &lister{k: k}) }},
		{k.Pods(), func(s *grpc.Server) { podsapi.RegisterPodsServer(s, &podServer{k: k}) }},
		{filepath.Join(k.DevicePlugins(), "kubelet.sock"), func(s *grpc.Server) { plugin.RegisterRegistrationServer(s, &registry{k: k}) }},
	} {
		if err := k.serve(s.socket, s.register); err != nil {
			return err
		}
	}
	return nil
}

func (k *Kubelet) serve(socket string, register func(*grpc.Server)) error {
	_ = os.Remove(socket)
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	listener.(*net.UnixListener).SetUnlinkOnClose(false) // a killed kubelet leaves its socket file
	server := grpc.NewServer()
	register(server)
	k.mu.Lock()
	k.servers = append(k.servers, server)
	k.mu.Unlock()
	go func() { _ = server.Serve(listener) }()
	return nil
}

// Kill stops the kubelet as SIGKILL does: connections break, and the socket files remain.
func (k *Kubelet) Kill() {
	k.mu.Lock()
	servers, conns := k.servers, k.conns
	k.servers, k.conns, k.latest = nil, nil, nil
	k.endpoints = map[string]plugin.DevicePluginClient{}
	k.notifyChanged()
	k.mu.Unlock()
	for _, c := range conns {
		c.Close()
	}
	for _, s := range servers {
		s.Stop()
	}
}

// notifyChanged wakes the callers of WaitDevices. The caller holds the lock.
func (k *Kubelet) notifyChanged() {
	close(k.changed)
	k.changed = make(chan struct{})
}

// rateLimitError returns the error of the kubelet's rate limit for the next Busy calls, and nil for all others.
func (k *Kubelet) rateLimitError() error {
	if k.Busy.Add(-1) >= 0 {
		return status.Error(codes.ResourceExhausted, "rejected by rate limit")
	}
	k.Busy.Store(0)
	return nil
}

// AddPod adds a pod that the kubelet has yet to admit.
func (k *Kubelet) AddPod(pod *v1.Pod) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.pods[pod.UID] = pod.DeepCopy()
	k.notify()
}

// RemovePod removes a pod and frees its devices.
func (k *Kubelet) RemovePod(uid types.UID) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.pods, uid)
	k.free(uid)
	k.notify()
}

// EndPod moves a pod to a terminal phase and frees its devices.
func (k *Kubelet) EndPod(uid types.UID, phase v1.PodPhase) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.pods[uid].Status.Phase = phase
	k.free(uid)
	k.notify()
}

func (k *Kubelet) free(uid types.UID) {
	maps.DeleteFunc(k.held, func(h holder, _ []string) bool { return h.uid == uid })
	maps.DeleteFunc(k.elsewhere, func(h holder, _ []*resources.ContainerDevices) bool { return h.uid == uid })
}

func (k *Kubelet) notify() {
	for w := range k.watchers {
		select {
		case w <- struct{}{}:
		default:
		}
	}
}

// Admit allocates n devices to a container by the same calls as a real kubelet: GetPreferredAllocation, then Allocate. podresources lists
// the devices only afterwards. It returns the name of the CDI device.
func (k *Kubelet) Admit(ctx context.Context, uid types.UID, container string, n int) (cdi string, err error) {
	k.mu.Lock()
	client, free := k.latest, k.available()
	k.mu.Unlock()
	if client == nil || len(free) < n {
		return "", fmt.Errorf("UnexpectedAdmissionError: %d devices are available, plugin %v", len(free), client != nil)
	}
	preferred, err := client.GetPreferredAllocation(ctx, &plugin.PreferredAllocationRequest{
		ContainerRequests: []*plugin.ContainerPreferredAllocationRequest{{AvailableDeviceIDs: free, AllocationSize: int32(n)}},
	})
	if err != nil {
		return "", fmt.Errorf("UnexpectedAdmissionError: %w", err)
	}
	ids := preferred.ContainerResponses[0].DeviceIDs
	answer, err := client.Allocate(ctx, &plugin.AllocateRequest{ContainerRequests: []*plugin.ContainerAllocateRequest{{DevicesIds: ids}}})
	if err != nil {
		return "", fmt.Errorf("UnexpectedAdmissionError: %w", err)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.held[holder{uid, container}] = ids
	return answer.ContainerResponses[0].CdiDevices[0].Name, nil
}

// Give records device IDs for a container without calling the plugin, as the kubelet does in bug k8s#137534.
func (k *Kubelet) Give(uid types.UID, container string, ids []string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.held[holder{uid, container}] = ids
}

// AllocateElsewhere records a device that another device plugin has allocated to a container.
func (k *Kubelet) AllocateElsewhere(uid types.UID, container, resource, id string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	h := holder{uid, container}
	k.elsewhere[h] = append(k.elsewhere[h], &resources.ContainerDevices{ResourceName: resource, DeviceIds: []string{id}})
}

func (k *Kubelet) available() (free []string) {
	taken := map[string]bool{}
	for _, ids := range k.held {
		for _, id := range ids {
			taken[id] = true
		}
	}
	for _, id := range k.devices {
		if !taken[id] {
			free = append(free, id)
		}
	}
	return free
}

// Create makes the device plugin calls of a container's creation: PreStartContainer, which is skipped while no plugin is registered, as in
// the real kubelet.
func (k *Kubelet) Create(ctx context.Context, uid types.UID, container string) error {
	k.mu.Lock()
	client, ids := k.latest, slices.Clone(k.held[holder{uid, container}])
	k.mu.Unlock()
	if client == nil {
		return nil
	}
	_, err := client.PreStartContainer(ctx, &plugin.PreStartContainerRequest{DevicesIds: ids})
	return err
}

// Held returns the device IDs that are allocated to the container.
func (k *Kubelet) Held(uid types.UID, container string) []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.held[holder{uid, container}])
}

// WaitDevices blocks until a registered plugin has reported exactly n devices.
func (k *Kubelet) WaitDevices(ctx context.Context, n int) error {
	for {
		k.mu.Lock()
		got, live, changed := len(k.devices), k.latest != nil, k.changed
		k.mu.Unlock()
		if live && got == n {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("%d devices, plugin %v: %w", got, live, ctx.Err())
		}
	}
}

// Devices returns the device IDs that the plugin reported last.
func (k *Kubelet) Devices() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.devices)
}

func dial(socket string) (*grpc.ClientConn, error) {
	return grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
}
