package kube

import (
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/gshare-dev/gshare/vgpu/residency"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// ResidencyOf returns the two sides of a pod's residency: how ready to serve gshare-controller wants it to be, and how ready the agent of its
// node says it is. A pod without the first annotation is residency.Fixed; one without the second has not started, or its agent does not
// report. If an annotation is malformed, the error says which, and both results are those of a pod without annotations, which counts as Hot.
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

// KeptOf returns how much device memory a placed pod keeps for each of its vGPUs while it counts as Warm (residency.Reached.Memory).
func KeptOf(pod *v1.Pod) share.Bytes {
	_, r, _ := ResidencyOf(pod)
	return r.Memory
}

// ResidencyReachedPatch returns the JSON patch that writes the level that a pod has reached. The API server refuses the patch if either
// annotation differs from this version of the pod, or the pod was replaced. The patch does not test the resourceVersion, which the kubelet
// does not keep current.
func ResidencyReachedPatch(pod *v1.Pod, reached string) []byte {
	type operation struct {
		Op    string  `json:"op"`
		Path  string  `json:"path"`
		Value *string `json:"value"` // null in a test: the annotation must be absent
	}
	annotation := func(name string) (path string, value *string) {
		path = "/metadata/annotations/" + strings.ReplaceAll(name, "/", "~1")
		if text, ok := pod.Annotations[name]; ok {
			value = &text
		}
		return path, value
	}
	wantedPath, wanted := annotation(AnnotationResidency)
	reachedPath, before := annotation(AnnotationResidencyReached)
	uid := string(pod.UID)
	return patch([]operation{
		{"test", "/metadata/uid", &uid}, {"test", wantedPath, wanted}, {"test", reachedPath, before}, {"add", reachedPath, &reached},
	})
}
