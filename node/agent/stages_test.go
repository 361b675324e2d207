package agent

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gshare-dev/gshare/node/gpu"
	"github.com/gshare-dev/gshare/vgpu/kube"
)

// staged returns a pod of two containers, main and second, each placed on an instance of its own.
func staged(t *testing.T, uid, main, second string) *v1.Pod {
	t.Helper()
	pod, other := placed(uid, main, 100, 100), placed(uid, second, 100, 100)
	other.Spec.Containers[0].Name = "second"
	pod.Spec.Containers = append(pod.Spec.Containers, other.Spec.Containers[0])
	placement, err := kube.DecodePlacement(pod.Annotations[kube.AnnotationPlacement])
	if err != nil {
		t.Fatal(err)
	}
	also, err := kube.DecodePlacement(other.Annotations[kube.AnnotationPlacement])
	if err != nil {
		t.Fatal(err)
	}
	also.Containers[0].Name = "second"
	placement.Containers = append(placement.Containers, also.Containers...)
	text, err := kube.EncodePlacement(placement)
	if err != nil {
		t.Fatal(err)
	}
	pod.Annotations = map[string]string{
		kube.AnnotationPlacement: text, kube.AnnotationContainerSlice + "main": "3g.40gb", kube.AnnotationContainerSlice + "second": "1g.10gb",
	}
	return pod
}

// TestInstanceForEachContainer: the containers of a pod that is placed on MIG instances of two profiles each get their own, which are made when
// they start and given back when the pod is gone.
func TestInstanceForEachContainer(t *testing.T) {
	t.Parallel()
	r, g := newPartitioned(t, func(p partitioned) gpu.Source { return p }, func() {})
	r.wait("places", func() bool { return r.published() != "" && r.offers("a.c3m4.4") && r.offers("a.c1m1.2") })
	r.kubelet.AddPod(staged(t, "a", "a.c3m4.4", "a.c1m1.2"))
	devices := map[string]string{}
	for _, container := range []string{"main", "second"} { // the kubelet allocates for all containers before the first starts
		device, err := r.kubelet.Admit(r.ctx, types.UID("a"), container, 1)
		if err != nil {
			t.Fatal(err)
		}
		devices[container] = device
	}
	for _, want := range []struct{ container, uuid string }{{"main", "MIG-GPU-a-0-0"}, {"second", "MIG-GPU-a-1-0"}} {
		spec, err := r.createContainerSoon("a", want.container, devices[want.container])
		if err != nil || !strings.Contains(spec, "CUDA_VISIBLE_DEVICES="+want.uuid+`"`) || strings.Count(spec, "MIG-GPU-a-") != strings.Count(spec, want.uuid) {
			t.Errorf("%s: %v; its CDI file is %s", want.container, err, spec)
		}
	}
	made := []string{"create GPU instance 3g.40gb at 4", "create compute instance 3g.40gb at 4", "create GPU instance 1g.10gb at 2", "create compute instance 1g.10gb at 2"}
	r.acted(g, made)
	r.kubelet.RemovePod("a")
	r.wait("release", func() bool { return len(r.grants()) == 0 })
}
