package kube

import (
	"fmt"
	"iter"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// RequestOf returns the shares that the containers of a pod request: sidecars first, then app containers.
//
// asks is true if a container has any gshare resource other than 0, even if err refuses it; a pod that has none has its annotations ignored. Every error wraps a
// *share.FieldError and is suitable as the text of an event on the pod.
func RequestOf(pod *v1.Pod) (req share.Request, asks bool, err error) {
	if !RequestsShare(pod) {
		return share.Request{}, false, nil
	}
	req, err = read(pod)
	return req, true, err
}

// RequestsShare reports whether a container has a resource with gshare's prefix that is not 0, even an unknown one, or the pod itself names one. It does not allocate memory.
func RequestsShare(pod *v1.Pod) bool {
	for c := range eachContainer(pod) {
		if containerAsks(c) {
			return true
		}
	}
	return podLevelResource(pod) != ""
}

// Ended reports whether the pod has terminated (phase Succeeded or Failed), so that it holds no resources.
func Ended(pod *v1.Pod) bool {
	return pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed
}

func read(pod *v1.Pod) (share.Request, error) {
	if name := podLevelResource(pod); name != "" {
		return share.Request{}, share.Invalid(string(name), "only containers may ask for it, not the pod or its overhead")
	}
	terms, err := share.NewTerms(rawTerms(pod.Annotations))
	if err != nil {
		return share.Request{}, err
	}
	asked, err := readContainers(pod)
	if err != nil {
		return share.Request{}, err
	}
	if err := checkMemorySize(pod.Annotations, asked); err != nil {
		return share.Request{}, err
	}
	req := share.Request{Terms: terms, Containers: asked}
	if err := req.Validate(); err != nil {
		return share.Request{}, err
	}
	return req, nil
}

func readContainers(pod *v1.Pod) ([]share.Container, error) {
	limits, err := readLimits(pod.Annotations)
	if err != nil {
		return nil, err
	}
	asked := make([]share.Container, 0, len(pod.Spec.Containers))
	for c, lasts := range eachContainer(pod) {
		if !containerAsks(c) {
			continue
		}
		if !lasts {
			return nil, fmt.Errorf("container %.64q: %w", c.Name, share.Invalid(share.FieldSM, "an init container that ends may not ask for a share"))
		}
		made, err := readContainer(c, limits)
		if err != nil {
			return nil, err
		}
		made.Slice = pod.Annotations[AnnotationContainerSlice+c.Name]
		asked = append(asked, made)
	}
	return asked, checkContainerSlices(pod.Annotations, asked)
}

// checkContainerSlices returns an error if an annotation sets the slice of a container that asks for no share or does not exist. Of several such
// annotations it names the alphabetically first, so that equal pods get equal events.
func checkContainerSlices(annotations map[string]string, asked []share.Container) error {
	var unknown string
	for key := range annotations {
		name, is := strings.CutPrefix(key, AnnotationContainerSlice)
		if is && (unknown == "" || key < unknown) && !slices.ContainsFunc(asked, func(c share.Container) bool { return c.Name == name }) {
			unknown = key
		}
	}
	if unknown == "" {
		return nil
	}
	return share.Invalid(unknown, "the pod has no container of that name that asks for a share")
}

// eachContainer iterates over the init containers, then the app containers. The second value is whether the container runs as long as the pod, which
// sidecars and app containers do.
func eachContainer(pod *v1.Pod) iter.Seq2[*v1.Container, bool] {
	return func(yield func(*v1.Container, bool) bool) {
		for i := range pod.Spec.InitContainers {
			c := &pod.Spec.InitContainers[i]
			sidecar := c.RestartPolicy != nil && *c.RestartPolicy == v1.ContainerRestartPolicyAlways
			if !yield(c, sidecar) {
				return
			}
		}
		for i := range pod.Spec.Containers {
			if !yield(&pod.Spec.Containers[i], true) {
				return
			}
		}
	}
}

func rawTerms(annotations map[string]string) share.RawTerms {
	return share.RawTerms{
		Class:       annotations[AnnotationClass],
		Isolation:   annotations[AnnotationIsolation],
		Model:       annotations[AnnotationModel],
		Workload:    annotations[AnnotationWorkload],
		Slice:       annotations[AnnotationSlice],
		Enforcement: annotations[AnnotationEnforcement],
		Weights:     annotations[AnnotationWeights],
		Packing:     annotations[AnnotationPacking],

		AntiAffinity: annotations[AnnotationAntiAffinity],
	}
}

// SMLimitOf returns the SM limit in the pod's annotation, which applies to each of its vGPUs and may be invalid for its share, or the limit with
// which the pod was placed if there is no annotation. Every error is a *share.FieldError.
func SMLimitOf(pod *v1.Pod, placed share.PerMille) (share.PerMille, error) {
	said, err := share.ParsePercent(AnnotationSMLimit, pod.Annotations[AnnotationSMLimit])
	switch {
	case err != nil:
		return 0, err
	case said == nil:
		return placed, nil
	case *said < 1 || *said > 100:
		return 0, share.Invalid(AnnotationSMLimit, "%d is not between 1 and 100", *said)
	}
	return share.PerMille(*said * 10), nil
}

// TrialQuotaOf returns the quota that AnnotationTrialQuota gives a pod for now. Without the annotation, said is false and quota is own, the quota of
// the pod's share. Every error is a *share.FieldError.
func TrialQuotaOf(pod *v1.Pod, own share.PerMille) (quota share.PerMille, said bool, err error) {
	percent, err := share.ParsePercent(AnnotationTrialQuota, pod.Annotations[AnnotationTrialQuota])
	switch {
	case err != nil:
		return own, false, err
	case percent == nil:
		return own, false, nil
	case *percent < 1 || share.PerMille(*percent*10) > own:
		return own, false, share.Invalid(AnnotationTrialQuota, "%d is not between 1 and %s, the quota of the share", *percent, own.Percent())
	}
	return share.PerMille(*percent * 10), true, nil
}

func readLimits(annotations map[string]string) (share.Limits, error) {
	sm, err := share.ParsePercent(AnnotationSMLimit, annotations[AnnotationSMLimit])
	if err != nil {
		return share.Limits{}, err
	}
	quota, err := share.ParsePercent(AnnotationQuotaLimit, annotations[AnnotationQuotaLimit])
	return share.Limits{SM: sm, Quota: quota}, err
}

// checkMemorySize returns an error if no container has as much memory as the pod's annotation says: either gshare/mem contradicts the annotation, or
// nothing has filled gshare/mem in.
func checkMemorySize(annotations map[string]string, asked []share.Container) error {
	mib, err := share.ParseMemorySize(annotations[AnnotationMemory])
	if err != nil || mib == nil {
		return err
	}
	for _, c := range asked {
		if c.Share.Memory*share.Bytes(c.VGPUs) == share.Bytes(*mib)*share.MiB {
			return nil
		}
	}
	return share.Invalid(AnnotationMemory, "no container has %d MiB of gshare/mem", *mib)
}

// ContainersWithVGPUs returns the names of the containers that request gshare/vgpu. The kubelet allocates device IDs to each of them once
// it has admitted the pod.
func ContainersWithVGPUs(pod *v1.Pod) (names []string) {
	for c := range eachContainer(pod) {
		if n, ok := c.Resources.Limits[ResourceVGPU]; ok && !n.IsZero() {
			names = append(names, c.Name)
		}
	}
	return names
}

// Complete fills in, in place, the fields of a pod that the admission policies would fill in: quota 100, vgpu ceil(sm/100), mem from the annotation
// gshare.dev/mem, sm-time, the requests that equal the limits, and the scheduler's name. It is for pods that pass through no admission policy, in the
// sandbox and in tests.
//
// It completes sidecars and app containers that name gshare/sm, never overwrites a value, and leaves what it cannot parse for RequestOf to refuse.
// Containers made from one template must not share their resource maps.
func Complete(pod *v1.Pod) {
	if !RequestsShare(pod) {
		return
	}
	memory, err := share.ParseMemorySize(pod.Annotations[AnnotationMemory])
	if err != nil {
		memory = nil
	}
	for c, lasts := range eachContainer(pod) {
		if lasts {
			completeResources(&c.Resources, memory)
		}
	}
	if name := pod.Spec.SchedulerName; name == "" || name == v1.DefaultSchedulerName {
		pod.Spec.SchedulerName = SchedulerName
	}
}

// completeResources completes the resources of one container. memory is what the pod's annotation says, in MiB; nil if there is none.
func completeResources(r *v1.ResourceRequirements, memory *int64) {
	sm, err := readInteger(ResourceSM, r.Limits)
	if err != nil || sm == nil || *sm < 1 || *sm > 100*share.MaxVGPUs {
		return
	}
	setDefault(r.Limits, ResourceVGPU, (*sm+99)/100)
	setDefault(r.Limits, ResourceQuota, 100)
	if memory != nil {
		setDefault(r.Limits, ResourceMemory, *memory)
	}
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
