package kube

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// Complete fills in, in place, the fields of a pod that the admission policies fill in: quota 100, vgpu ceil(sm/100), sm-time, the requests
// that equal the limits, and the scheduler's name. It is for pods that pass no admission policy, in the sandbox and in tests.
//
// It completes sidecars and app containers that name gshare/sm, never overwrites a value, and leaves what it cannot parse for RequestOf to
// refuse. Containers made from one template must not share their resource maps.
func Complete(pod *v1.Pod) {
	if !RequestsShare(pod) {
		return
	}
	for c, lasts := range eachContainer(pod) {
		if lasts {
			completeResources(&c.Resources)
		}
	}
	if name := pod.Spec.SchedulerName; name == "" || name == v1.DefaultSchedulerName {
		pod.Spec.SchedulerName = SchedulerName
	}
}

func completeResources(r *v1.ResourceRequirements) {
	sm, err := readInteger(ResourceSM, r.Limits)
	if err != nil || sm == nil || *sm < 1 || *sm > 100*share.MaxVGPUs {
		return
	}
	setDefault(r.Limits, ResourceVGPU, (*sm+99)/100)
	setDefault(r.Limits, ResourceQuota, 100)
	if quota, err := readInteger(ResourceQuota, r.Limits); err == nil && *quota > 0 && *quota <= 100 {
		setDefault(r.Limits, ResourceSMTime, smTime(*sm, quota))
	}
	copyRequests(r)
}

func copyRequests(r *v1.ResourceRequirements) {
	if r.Requests == nil {
		r.Requests = v1.ResourceList{}
	}
	for _, name := range resources {
		if _, written := r.Requests[name]; written {
			continue
		}
		if limit, written := r.Limits[name]; written {
			r.Requests[name] = limit.DeepCopy()
		}
	}
}

func setDefault(list v1.ResourceList, name v1.ResourceName, value int64) {
	if _, written := list[name]; !written {
		list[name] = *resource.NewQuantity(value, resource.DecimalSI)
	}
}
