package kubelet

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	plugin "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	resources "k8s.io/kubelet/pkg/apis/podresources/v1"
	podsapi "k8s.io/kubelet/pkg/apis/pods/v1alpha1"
)

// registry implements the kubelet's registration API for device plugins.
type registry struct {
	plugin.UnimplementedRegistrationServer
	k *Kubelet
}

func (r *registry) Register(ctx context.Context, request *plugin.RegisterRequest) (*plugin.Empty, error) {
	k := r.k
	if request.ResourceName != k.Resource || request.Version != plugin.Version {
		return nil, fmt.Errorf("unsupported: %s of %s", request.ResourceName, request.Version)
	}
	conn, err := dial(filepath.Join(k.DevicePlugins(), request.Endpoint))
	if err != nil {
		return nil, err
	}
	client := plugin.NewDevicePluginClient(conn)
	options, err := client.GetDevicePluginOptions(ctx, &plugin.Empty{})
	if err != nil {
		conn.Close()
		return nil, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.endpoints[request.Endpoint] != nil {
		conn.Close()
		return nil, fmt.Errorf("device plugin already connected: %s", request.Endpoint)
	}
	if !options.PreStartRequired {
		conn.Close()
		return nil, fmt.Errorf("the plugin does not require PreStart")
	}
	k.conns = append(k.conns, conn)
	k.endpoints[request.Endpoint] = client
	go k.watch(request.Endpoint, client)
	return &plugin.Empty{}, nil
}

// watch stores the devices that a plugin reports, until the plugin's ListAndWatch stream ends.
func (k *Kubelet) watch(endpoint string, client plugin.DevicePluginClient) {
	stream, err := client.ListAndWatch(context.Background(), &plugin.Empty{})
	for err == nil {
		var m *plugin.ListAndWatchResponse
		if m, err = stream.Recv(); err != nil {
			break
		}
		k.mu.Lock()
		k.latest, k.devices = client, nil
		for _, d := range m.Devices {
			k.devices = append(k.devices, d.ID)
		}
		k.notifyChanged()
		k.mu.Unlock()
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.endpoints, endpoint)
	if k.latest == client {
		k.latest = nil
		for _, other := range k.endpoints { // the real kubelet does the same
			k.latest = other
		}
		k.notifyChanged()
	}
}

// lister implements the kubelet's podresources API.
type lister struct {
	resources.UnimplementedPodResourcesListerServer
	k *Kubelet
}

// Get returns the devices of a pod by its name. Like the real kubelet, it returns an error without a gRPC code for a missing pod.
func (l *lister) Get(_ context.Context, r *resources.GetPodResourcesRequest) (*resources.GetPodResourcesResponse, error) {
	l.k.Gets.Add(1)
	if err := l.k.rateLimitError(); err != nil {
		return nil, err
	}
	l.k.mu.Lock()
	defer l.k.mu.Unlock()
	for uid, pod := range l.k.pods {
		if pod.Name != r.PodName || pod.Namespace != r.PodNamespace {
			continue
		}
		return &resources.GetPodResourcesResponse{PodResources: l.k.record(pod, uid)}, nil
	}
	return nil, fmt.Errorf("pod %s in namespace %s not found", r.PodName, r.PodNamespace)
}

func (l *lister) List(context.Context, *resources.ListPodResourcesRequest) (*resources.ListPodResourcesResponse, error) {
	l.k.Lists.Add(1)
	if err := l.k.rateLimitError(); err != nil {
		return nil, err
	}
	l.k.mu.Lock()
	defer l.k.mu.Unlock()
	answer := &resources.ListPodResourcesResponse{}
	for uid, pod := range l.k.pods {
		if pod.Status.Phase != v1.PodSucceeded && pod.Status.Phase != v1.PodFailed {
			answer.PodResources = append(answer.PodResources, l.k.record(pod, uid))
		}
	}
	return answer, nil
}

// record returns the allocated devices of one pod in the form of the podresources API. The caller holds the lock.
func (k *Kubelet) record(pod *v1.Pod, uid types.UID) *resources.PodResources {
	answer := &resources.PodResources{Name: pod.Name, Namespace: pod.Namespace}
	for _, c := range pod.Spec.Containers {
		h := holder{uid, c.Name}
		found := &resources.ContainerResources{Name: c.Name, Devices: slices.Clone(k.elsewhere[h])}
		if !k.Hide.Load() {
			for _, id := range k.held[h] { // one entry for each device, as in the real kubelet
				found.Devices = append(found.Devices, &resources.ContainerDevices{ResourceName: k.Resource, DeviceIds: []string{id}})
			}
		}
		answer.Containers = append(answer.Containers, found)
	}
	return answer
}

// podServer implements the kubelet's PodsAPI.
type podServer struct {
	podsapi.UnimplementedPodsServer
	k *Kubelet
}

func (s *podServer) ready() error {
	if s.k.Starting.Load() {
		return status.Error(codes.FailedPrecondition, "Kubelet is initializing")
	}
	return s.k.rateLimitError()
}

func (s *podServer) ListPods(context.Context, *podsapi.ListPodsRequest) (*podsapi.ListPodsResponse, error) {
	if err := s.ready(); err != nil {
		return nil, err
	}
	s.k.mu.Lock()
	defer s.k.mu.Unlock()
	answer := &podsapi.ListPodsResponse{}
	for _, pod := range s.k.pods {
		text, err := pod.Marshal()
		if err != nil {
			return nil, err
		}
		answer.Pods = append(answer.Pods, text)
	}
	slices.SortFunc(answer.Pods, slices.Compare)
	return answer, nil
}

func (s *podServer) GetPod(_ context.Context, r *podsapi.GetPodRequest) (*podsapi.GetPodResponse, error) {
	if err := s.ready(); err != nil {
		return nil, err
	}
	s.k.mu.Lock()
	defer s.k.mu.Unlock()
	pod := s.k.pods[types.UID(r.PodUID)]
	if pod == nil {
		return nil, status.Errorf(codes.NotFound, "pod with UID %s not found", r.PodUID)
	}
	text, err := pod.Marshal()
	return &podsapi.GetPodResponse{Pod: text}, err
}

func (s *podServer) WatchPods(_ *podsapi.WatchPodsRequest, stream podsapi.Pods_WatchPodsServer) error {
	if err := s.ready(); err != nil {
		return err
	}
	events := make(chan struct{}, 1)
	s.k.mu.Lock()
	s.k.watchers[events] = true
	s.k.mu.Unlock()
	defer func() {
		s.k.mu.Lock()
		defer s.k.mu.Unlock()
		delete(s.k.watchers, events)
	}()
	for {
		if err := stream.Send(&podsapi.WatchPodsEvent{Type: podsapi.EventType_DELETED, Pod: marshal(&v1.Pod{})}); err != nil {
			return err
		}
		select {
		case <-events:
		case <-stream.Context().Done():
			return nil
		}
	}
}

func marshal(pod *v1.Pod) []byte {
	text, _ := pod.Marshal() // of an empty pod
	return text
}
