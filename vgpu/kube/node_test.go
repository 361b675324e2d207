package kube

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestHolders(t *testing.T) {
	always := v1.ContainerRestartPolicyAlways
	with := func(name string, n string) v1.Container {
		return v1.Container{Name: name, Resources: v1.ResourceRequirements{Limits: v1.ResourceList{ResourceVGPU: resource.MustParse(n)}}}
	}
	sidecar := with("sidecar", "1")
	sidecar.RestartPolicy = &always
	pod := &v1.Pod{Spec: v1.PodSpec{
		InitContainers: []v1.Container{{Name: "init"}, sidecar},
		Containers:     []v1.Container{with("two", "2"), with("none", "0"), {Name: "plain"}},
	}}
	if diff := cmp.Diff([]string{"sidecar", "two"}, ContainersWithVGPUs(pod)); diff != "" {
		t.Error(diff)
	}
}

func TestTruth(t *testing.T) {
	want := EnforcementStatus{Containers: []ContainerEnforcement{{
		Name: "main", Since: time.Date(2026, 1, 2, 3, 4, 5, 6e6, time.UTC), Memory: "hook", SMs: "MPS", Time: "hook", Identity: "cgroup",
		Health: "GPU-0: Xid 79", Missing: []string{"something"}, MemoryPeakMiB: 1056,
	}}}
	text, err := EncodeEnforcementStatus(want)
	if err != nil {
		t.Fatal(err)
	}
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{AnnotationEnforcementStatus: text}}}
	got, present, err := EnforcementStatusOf(pod)
	if diff := cmp.Diff(want, got); diff != "" || !present || err != nil {
		t.Errorf("present %v, %v\n%s", present, err, diff)
	}
	if _, present, err := EnforcementStatusOf(&v1.Pod{}); present || err != nil {
		t.Errorf("no report: present %v, %v", present, err)
	}
	for _, bad := range []string{"", "{}", `{"v":2}`, `{"v":1,"more":1}`, text + "x"} {
		pod.Annotations[AnnotationEnforcementStatus] = bad
		if _, _, err := EnforcementStatusOf(pod); !errors.Is(err, ErrMalformed) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func TestCapacityPatch(t *testing.T) {
	has := func(memory, time string) v1.ResourceList {
		return v1.ResourceList{ResourceMemory: resource.MustParse(memory), ResourceSMTime: resource.MustParse(time), ResourceVGPU: resource.MustParse("16")}
	}
	node := func(capacity, allocatable v1.ResourceList) *v1.Node {
		return &v1.Node{Status: v1.NodeStatus{Capacity: capacity, Allocatable: allocatable}}
	}
	bound := v1.ResourceList{} // it is not known what they request
	requesting := func(time string) v1.ResourceList { return v1.ResourceList{ResourceSMTime: resource.MustParse(time)} }
	for name, test := range map[string]struct {
		node *v1.Node
		keep v1.ResourceList
		want map[string]string // of capacity; nil: no patch
	}{
		"says so already":        {node(has("100", "10000"), has("100", "10000")), bound, nil},
		"says nothing":           {node(nil, nil), bound, map[string]string{"gshare/mem": "100", "gshare/sm-time": "10k"}},
		"zeroed":                 {node(has("0", "10000"), has("0", "10000")), bound, map[string]string{"gshare/mem": "100"}},
		"half zeroed":            {node(has("100", "10000"), has("0", "10000")), bound, map[string]string{"gshare/mem": "100"}},
		"kept":                   {node(has("200", "20000"), has("200", "20000")), bound, nil},
		"kept, restored":         {node(has("200", "10000"), has("0", "10000")), bound, map[string]string{"gshare/mem": "200"}},
		"may shrink":             {node(has("200", "10000"), has("200", "10000")), nil, map[string]string{"gshare/mem": "100"}},
		"of the kubelet":         {node(has("100", "10000"), has("100", "10000")), nil, nil},
		"falls":                  {node(has("200", "15400"), has("200", "15400")), requesting("9000"), map[string]string{"gshare/sm-time": "10k"}},
		"falls to what they ask": {node(has("200", "15400"), has("200", "15400")), requesting("12000"), map[string]string{"gshare/sm-time": "12k"}},
		"they ask for more":      {node(has("200", "15400"), has("200", "15400")), requesting("16000"), nil},
	} {
		t.Run(name, func(t *testing.T) {
			patch := CapacityPatch(test.node, has("100", "10000"), test.keep)
			var got struct {
				Status struct{ Capacity, Allocatable map[string]string }
			}
			if patch != nil {
				if err := json.Unmarshal(patch, &got); err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff(test.want, got.Status.Capacity); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(got.Status.Capacity, got.Status.Allocatable); diff != "" {
				t.Errorf("capacity and allocatable differ: %s", diff)
			}
		})
	}
}

func TestAnnotationPatches(t *testing.T) {
	if got, want := string(AnnotationPatch("a/b", `x"y`)), `{"metadata":{"annotations":{"a/b":"x\"y"}}}`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got, want := string(AnnotationPatchForUID("u", "a", "b")), `{"metadata":{"annotations":{"a":"b"},"uid":"u"}}`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
