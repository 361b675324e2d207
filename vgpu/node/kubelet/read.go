package kubelet

import (
	"context"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	resources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/node/grant"
	"github.com/gshare-dev/gshare/vgpu/node/ticket"
)

// readTimeout bounds one read of the device allocations of all pods.
const readTimeout = 20 * time.Second

// readFor runs readAll for several waiting callers, so the end of the first caller's context does not stop it.
func (r *Records) readFor(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readTimeout)
	defer cancel()
	return r.readAll(ctx)
}

// readAll reads from the kubelet which tickets it has allocated to the containers of those pods that are not completely known yet.
func (r *Records) readAll(ctx context.Context) error {
	pods, err := r.pods.List(ctx)
	if err != nil {
		return err
	}
	for _, pod := range pods {
		if Ended(pod) || !kube.RequestsShare(pod) || r.Complete(pod.UID) {
			continue
		}
		if slices.ContainsFunc(pods, func(other *v1.Pod) bool { return namesake(pod, other) }) {
			continue // Get identifies pods by name: with two of one name, the answer is ambiguous
		}
		if err := r.readPod(ctx, pod); err != nil {
			return err
		}
	}
	return nil
}

// Complete reports whether the tickets of all of the pod's containers that need some are known.
func (r *Records) Complete(uid types.UID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.read[uid]
}

func namesake(a, b *v1.Pod) bool {
	return a.Namespace == b.Namespace && a.Name == b.Name && a.UID != b.UID && !Ended(b)
}

func (r *Records) readPod(ctx context.Context, pod *v1.Pod) error {
	r.mu.Lock()
	epoch := r.epoch
	r.mu.Unlock()
	var answer *resources.GetPodResourcesResponse
	err := retryWhileBusy(ctx, r.limit, func(ctx context.Context) (err error) {
		answer, err = r.client.Get(ctx, &resources.GetPodResourcesRequest{PodName: pod.Name, PodNamespace: pod.Namespace})
		return err
	})
	if err != nil {
		if ctx.Err() != nil {
			return err
		}
		return nil // the pod is gone, for which the kubelet has no error code
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.storeRecord(pod, answer.GetPodResources().GetContainers(), epoch)
	return nil
}

// storeRecord stores the tickets of one pod's containers. It skips tickets that the kubelet has allocated again since the epoch at which
// the record was requested. The caller holds the lock.
func (r *Records) storeRecord(pod *v1.Pod, containers []*resources.ContainerResources, epoch uint64) {
	learned := 0
	for _, c := range containers {
		var tickets []string
		for _, d := range c.Devices {
			if d.ResourceName == string(kube.ResourceVGPU) {
				tickets = append(tickets, d.DeviceIds...)
			}
		}
		if len(tickets) == 0 || slices.ContainsFunc(tickets, func(t string) bool { return r.given[t] > epoch }) {
			continue
		}
		slices.Sort(tickets)
		o := owned{grant.Owner{UID: pod.UID, Namespace: pod.Namespace, Name: pod.Name, Container: c.Name}, tickets}
		key := ticket.Key(tickets)
		if other, ok := r.owners[key]; ok && other.Owner != o.Owner {
			o.Container = "" // k8s#137534: given twice
		}
		r.owners[key] = o
		learned++
	}
	r.read[pod.UID] = learned == len(kube.ContainersWithVGPUs(pod))
}

// Allocation is a device that another device plugin has allocated to a container.
type Allocation struct {
	Namespace, Pod, Container string
	Resource, Device          string // ID in the plugin
}

// AllocatedElsewhere returns the devices that other device plugins have allocated to containers. It makes one call and does not retry.
func (r *Records) AllocatedElsewhere(ctx context.Context) (found []Allocation, err error) {
	answer, err := r.client.List(ctx, &resources.ListPodResourcesRequest{})
	if err != nil {
		return nil, err
	}
	for _, pod := range answer.PodResources {
		for _, c := range pod.Containers {
			for _, d := range c.Devices {
				if d.ResourceName == string(kube.ResourceVGPU) {
					continue
				}
				for _, id := range d.DeviceIds {
					found = append(found, Allocation{pod.Namespace, pod.Name, c.Name, d.ResourceName, id})
				}
			}
		}
	}
	return found, nil
}
