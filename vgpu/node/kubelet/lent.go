package kubelet

import (
	"context"

	resources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/gshare-dev/gshare/vgpu/kube"
)

// Lent is a device that a container holds through another device plugin.
type Lent struct {
	Namespace, Pod, Container string
	Resource, Device          string // as the plugin calls it
}

// Lent lists what containers hold through other device plugins. It is asked for again and again, so it asks once: who is
// refused learns as much the next time.
func (r *Records) Lent(ctx context.Context) (lent []Lent, err error) {
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
					lent = append(lent, Lent{pod.Namespace, pod.Name, c.Name, d.ResourceName, id})
				}
			}
		}
	}
	return lent, nil
}
