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

// readLimit bounds one round of questions.
const readLimit = 20 * time.Second

// readFor is readAll for all who wait: it does not end with the one who was first.
func (r *Records) readFor(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readLimit)
	defer cancel()
	return r.readAll(ctx)
}

// readAll asks for the records of the pods that are not known yet. A pod whose containers hold nothing yet is asked for again.
func (r *Records) readAll(ctx context.Context) error {
	pods, err := r.pods.List(ctx)
	if err != nil {
		return err
	}
	for _, pod := range pods {
		if Ended(pod) || !kube.Asks(pod) || r.Read(pod.UID) {
			continue
		}
		if slices.ContainsFunc(pods, func(other *v1.Pod) bool { return namesake(pod, other) }) {
			continue // Get goes by the name: with two of it, nobody knows whose record it gives
		}
		if err := r.readPod(ctx, pod); err != nil {
			return err
		}
	}
	return nil
}

// Read says that it is known what all containers of the pod hold.
func (r *Records) Read(uid types.UID) bool {
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
	err := patiently(ctx, r.limit, func(ctx context.Context) (err error) {
		answer, err = r.client.Get(ctx, &resources.GetPodResourcesRequest{PodName: pod.Name, PodNamespace: pod.Namespace})
		return err
	})
	if err != nil {
		if ctx.Err() != nil {
			return err
		}
		return nil // it has gone meanwhile, which the kubelet tells as an error of no kind
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.learn(pod, answer.GetPodResources().GetContainers(), epoch)
	return nil
}

// learn keeps what the kubelet said of one pod when it was asked at that epoch. The caller holds the lock.
func (r *Records) learn(pod *v1.Pod, containers []*resources.ContainerResources, epoch uint64) {
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
	r.read[pod.UID] = learned == len(kube.Holders(pod))
}
