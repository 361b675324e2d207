package kube_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/residency"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// What instances gave up can be requested by other pods, though kube-scheduler and the kubelet add up the requests of all.
func TestNodeResourcesHaveWhatIsGivenUp(t *testing.T) {
	const (
		lower   = `{"v":1,"residency":{"seq":2,"level":"Shared"}}`
		reached = `{"v":1,"residency":{"seq":2,"level":"Shared"}}`
		raise   = `{"v":1,"residency":{"seq":3,"level":"Hot"}}`
		park    = `{"v":1,"residency":{"seq":3,"level":"Warm","drained":true}}`
		parked  = `{"v":1,"residency":{"seq":3,"level":"Warm","memory":1048577}}`
	)
	instance := func(wanted, reached string, change ...func(*v1.Pod)) *v1.Pod {
		pod := &v1.Pod{Spec: v1.PodSpec{NodeName: "n", Containers: []v1.Container{{Resources: v1.ResourceRequirements{
			Requests: v1.ResourceList{
				kube.ResourceSMTime: resource.MustParse("4000"), kube.ResourceMemory: resource.MustParse("60"), kube.ResourceVGPU: resource.MustParse("1"),
			},
		}}}}}
		pod.Annotations = map[string]string{kube.AnnotationResidency: wanted, kube.AnnotationResidencyReached: reached}
		for _, c := range change {
			c(pod)
		}
		return pod
	}
	inTurn := func(pod *v1.Pod) {
		pod.UID, pod.Spec.Containers[0].Name = "u", "main"
		text, err := kube.EncodePlacement(kube.Placement{Node: "n", UID: "u", Model: kube.Slots, Containers: []kube.PlacedContainer{{
			Name: "main", VGPUs: []kube.PlacedVGPU{{Slice: "a", Class: share.Swap, Priority: share.SLO, Share: share.Share{
				SMRequest: 1000, SMLimit: 1000, QuotaRequest: 400, QuotaLimit: 400, Memory: 60 * share.MiB,
			}}},
		}}})
		if err != nil {
			t.Fatal(err)
		}
		pod.Annotations[kube.AnnotationPlacement] = text
	}
	inventory := kube.Inventory{Slices: []kube.Slice{{ID: "a", Device: "a", MemoryMiB: 100}}}
	for _, c := range []struct {
		name   string
		pod    *v1.Pod
		want   int64
		memory int64
	}{
		{"Shared", instance(lower, reached), 14000, 100},
		{"raised", instance(raise, reached), 10000, 100},
		{"to be parked", instance(park, reached), 14000, 100},
		{"parked", instance(park, parked), 14000, 158},
		{"parked, raised", instance(raise, parked), 10000, 100},
		{"Hot, in turn", instance(raise, reached, inTurn), 14000, 160},
		{"parked, in turn", instance(park, parked, inTurn), 14000, 160},
		{"plain, in turn", instance("", "", func(pod *v1.Pod) { delete(pod.Annotations, kube.AnnotationResidency) }, inTurn), 14000, 160},
		{"not an instance", instance("", "", func(pod *v1.Pod) { pod.Annotations = nil }), 10000, 100},
		{"not bound", instance(lower, reached, func(pod *v1.Pod) { pod.Spec.NodeName = "" }), 10000, 100},
		{"ended", instance(lower, reached, func(pod *v1.Pod) { pod.Status.Phase = v1.PodFailed }), 10000, 100},
	} {
		t.Run(c.name, func(t *testing.T) {
			want := kube.NodeResources(inventory)
			want[kube.ResourceSMTime] = *resource.NewQuantity(c.want, resource.DecimalSI)
			want[kube.ResourceMemory] = *resource.NewQuantity(c.memory, resource.DecimalSI)
			if diff := cmp.Diff(want, kube.NodeResources(inventory, c.pod)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestResidencyOf(t *testing.T) {
	const (
		wanted  = `{"v":1,"residency":{"seq":2,"level":"Shared"}}`
		reached = `{"v":1,"residency":{"seq":1,"level":"Hot"}}`
	)
	for _, c := range []struct {
		name            string
		wanted, reached string
		w               residency.Wanted
		r               residency.Reached
		fails           bool
	}{
		{name: "not an instance", w: residency.Fixed},
		{name: "not started", wanted: wanted, w: residency.Wanted{Seq: 2, Level: residency.Shared}},
		{"being lowered", wanted, reached, residency.Wanted{Seq: 2, Level: residency.Shared}, residency.Reached{Seq: 1, Level: residency.Hot}, false},
		{name: "malformed wanted", wanted: "Shared", reached: reached, w: residency.Fixed, fails: true},
		{name: "malformed reached", wanted: wanted, reached: "{}", w: residency.Fixed, fails: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			pod := &v1.Pod{}
			pod.Annotations = map[string]string{}
			for key, text := range map[string]string{kube.AnnotationResidency: c.wanted, kube.AnnotationResidencyReached: c.reached} {
				if text != "" {
					pod.Annotations[key] = text
				}
			}
			w, r, err := kube.ResidencyOf(pod)
			if w != c.w || r != c.r || (err != nil) != c.fails {
				t.Errorf("ResidencyOf = %+v, %+v, %v; want %+v, %+v, error: %t", w, r, err, c.w, c.r, c.fails)
			}
		})
	}
}
