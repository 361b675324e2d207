package kube

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// readContainer returns the share that one container requests with its resources and the limits from the pod's annotations.
func readContainer(c *v1.Container, limits share.Limits) (share.Container, error) {
	raw, err := readResources(c.Resources)
	if err != nil {
		return share.Container{}, fmt.Errorf("container %.64q: %w", c.Name, err)
	}
	made, err := share.NewContainer(c.Name, raw, limits)
	if err != nil {
		return share.Container{}, err
	}
	if err := checkSMTime(c.Resources.Limits, raw); err != nil {
		return share.Container{}, fmt.Errorf("container %.64q: %w", c.Name, err)
	}
	return made, nil
}

func readResources(r v1.ResourceRequirements) (raw share.RawContainer, err error) {
	if name := firstMatch(isUnknownResource, r.Limits, r.Requests); name != "" {
		return raw, share.Invalid(string(name), "gshare has no such resource; it has sm, quota, mem, vgpu and sm-time")
	}
	var whole [len(resources)]*int64 // values in the order of resources
	for i, name := range resources {
		if whole[i], err = readLimit(name, r); err != nil {
			return raw, err
		}
	}
	return share.RawContainer{SM: whole[0], Quota: whole[1], Memory: whole[2], VGPUs: whole[3]}, nil
}

// readLimit returns the limit of one resource, or nil if there is none. A request must equal the limit, or be left out. The API server
// enforces this too; the check is for objects that never passed through an API server.
func readLimit(name v1.ResourceName, r v1.ResourceRequirements) (*int64, error) {
	limit, err := readInteger(name, r.Limits)
	if err != nil {
		return nil, err
	}
	request, err := readInteger(name, r.Requests)
	switch {
	case err != nil:
		return nil, err
	case request == nil:
		return limit, nil
	case limit == nil:
		return nil, share.Invalid(string(name), "it is in the requests but not in the limits")
	case *limit != *request:
		return nil, share.Invalid(string(name), "the request of %d is not the limit of %d", *request, *limit)
	}
	return limit, nil
}

// maxScale bounds the decimal exponent of the quantities that are used in arithmetic. A text like 1e30000000 parses in a microsecond, but
// Value, Cmp and String then need ten seconds.
const maxScale = 64

// readInteger returns the value of a resource as an integer, or nil if the list does not have it.
func readInteger(name v1.ResourceName, list v1.ResourceList) (*int64, error) {
	q, written := list[name]
	if !written {
		return nil, nil
	}
	if q.IsZero() { // AsInt64 would multiply 0e2000000000 by ten two thousand million times
		return new(int64), nil
	}
	if value, ok := q.AsInt64(); ok {
		return &value, nil
	}
	if scale := q.AsDec().Scale(); scale < -maxScale || scale > maxScale {
		return nil, share.Invalid(string(name), "a number of more than %d zeros is too large", maxScale)
	}
	value := q.Value() // rounds up, and saturates at the largest int64
	if q.CmpInt64(value) != 0 {
		return nil, share.Invalid(string(name), "%.32s is not a whole number, or too large", q.String())
	}
	return &value, nil
}

// checkSMTime returns an error if the container's sm-time is set and differs from sm x quota. raw has passed share.NewContainer, so the
// product does not overflow.
func checkSMTime(list v1.ResourceList, raw share.RawContainer) error {
	written, err := readInteger(ResourceSMTime, list)
	if err != nil || written == nil {
		return err
	}
	if want := smTime(*raw.SM, raw.Quota); *written != want {
		return share.Invalid(share.FieldSMTime, "%d is not sm x quota, which is %d", *written, want)
	}
	return nil
}

func smTime(sm int64, quota *int64) int64 {
	if quota == nil {
		return sm * 100
	}
	return sm * *quota
}

// containerAsks reports whether a container has a gshare resource other than 0. The admission policies write 0 where a LimitRange has filled in a
// share that the container does not ask for.
func containerAsks(c *v1.Container) bool {
	for _, list := range [...]v1.ResourceList{c.Resources.Limits, c.Resources.Requests} {
		for name, q := range list {
			if isGshareResource(name) && !q.IsZero() {
				return true
			}
		}
	}
	return false
}

// podLevelResource returns the name of a gshare resource in the pod's overhead or pod-level resources, where gshare allows none, or "" if
// there is none.
func podLevelResource(pod *v1.Pod) v1.ResourceName {
	if name := firstMatch(isGshareResource, pod.Spec.Overhead); name != "" || pod.Spec.Resources == nil {
		return name
	}
	return firstMatch(isGshareResource, pod.Spec.Resources.Limits, pod.Spec.Resources.Requests)
}

// firstMatch returns the alphabetically first of the resource names that match, so that equal pods get equal events, or "" if none does.
func firstMatch(meant func(v1.ResourceName) bool, lists ...v1.ResourceList) v1.ResourceName {
	var first v1.ResourceName
	for _, list := range lists {
		for name := range list {
			if meant(name) && (first == "" || name < first) {
				first = name
			}
		}
	}
	return first
}

func isGshareResource(name v1.ResourceName) bool {
	return strings.HasPrefix(string(name), ResourcePrefix)
}

func isUnknownResource(name v1.ResourceName) bool {
	return isGshareResource(name) && !slices.Contains(resources[:], name)
}
