package kube

import (
	v1 "k8s.io/api/core/v1"

	"github.com/gshare-dev/gshare/vgpu/residency"
)

// ResidencyOf returns how ready to serve a pod is to be, by gshare-controller, and is, by the agent of its node. A pod without the first
// annotation is residency.Fixed; without the second it has not started, or its agent does not report. If an annotation is malformed, the
// error says which, and both results are those of a pod without annotations, which counts as Hot.
func ResidencyOf(pod *v1.Pod) (w residency.Wanted, r residency.Reached, err error) {
	w = residency.Fixed
	if text, ok := pod.Annotations[AnnotationResidency]; ok {
		if w, err = residency.DecodeWanted(text); err != nil {
			return residency.Fixed, residency.Reached{}, err
		}
	}
	if text, ok := pod.Annotations[AnnotationResidencyReached]; ok {
		if r, err = residency.DecodeReached(text); err != nil {
			return residency.Fixed, residency.Reached{}, err
		}
	}
	return w, r, nil
}

// LevelOf returns the level at which a placed pod counts on its slices (residency.Counted). A pod whose residency is malformed counts as Hot.
func LevelOf(pod *v1.Pod) residency.Level {
	w, r, _ := ResidencyOf(pod) // after an error both are those of a pod without annotations
	return residency.Counted(w, r)
}
