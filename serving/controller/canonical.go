package controller

import (
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
)

// canonical returns the share and the template of a specification in a form that does not depend on how their quantities are written: 1Gi is 1024Mi.
func canonical(s *api.FaSTPodSpec) (api.Share, v1.PodTemplateSpec) {
	share, template := *s.Share.DeepCopy(), *s.Template.DeepCopy()
	if memory, err := share.Memory.Parse(); err == nil {
		canonicalizeBytes(&memory)
		share.Memory = api.Quantity(memory.String())
	}
	if share.GPUs == 1 { // the default
		share.GPUs = 0
	}
	pod := &template.Spec
	lists := []v1.ResourceList{pod.Overhead}
	requirements := []*v1.ResourceRequirements{}
	for _, containers := range [][]v1.Container{pod.Containers, pod.InitContainers} {
		for at := range containers {
			requirements = append(requirements, &containers[at].Resources)
		}
	}
	if pod.Resources != nil {
		requirements = append(requirements, pod.Resources)
	}
	for _, r := range requirements {
		lists = append(lists, r.Limits, r.Requests)
	}
	for _, list := range lists {
		canonicalizeList(list)
	}
	for at := range pod.Volumes {
		switch v := &pod.Volumes[at]; {
		case v.EmptyDir != nil && v.EmptyDir.SizeLimit != nil:
			canonicalizeBytes(v.EmptyDir.SizeLimit)
		case v.Ephemeral != nil && v.Ephemeral.VolumeClaimTemplate != nil:
			canonicalizeList(v.Ephemeral.VolumeClaimTemplate.Spec.Resources.Requests)
			canonicalizeList(v.Ephemeral.VolumeClaimTemplate.Spec.Resources.Limits)
		}
	}
	return share, template
}

func canonicalizeList(list v1.ResourceList) {
	for name, quantity := range list {
		if isInBytes(name) {
			canonicalizeBytes(&quantity)
		} else {
			quantity.Format = resource.DecimalSI
			quantity.Add(resource.Quantity{}) // forgets its original notation
		}
		list[name] = quantity
	}
}

// isInBytes reports whether a resource is usually written in multiples of 1024 bytes.
func isInBytes(name v1.ResourceName) bool {
	return slices.Contains([]v1.ResourceName{v1.ResourceMemory, v1.ResourceEphemeralStorage, v1.ResourceStorage}, name) ||
		strings.HasPrefix(string(name), v1.ResourceHugePagesPrefix)
}

// canonicalizeBytes writes a number of bytes in the notation that most users choose, so that few templates get another hash than in earlier versions.
func canonicalizeBytes(q *resource.Quantity) {
	format := resource.BinarySI
	if q.Value()%1000 == 0 {
		format = resource.DecimalSI
	}
	*q = *resource.NewQuantity(q.Value(), format)
}
