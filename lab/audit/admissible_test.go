package audit

import (
	"fmt"
	"reflect"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/share"
)

func note(pairs ...string) map[string]string {
	out := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		out[pairs[i]] = pairs[i+1]
	}
	return out
}

// TestAdmissible asks the clean cluster. On node a: a0 slots 2 x (60 % x 40 %), a1 full rectangles, a2 elastic 30 %,
// a3 exclusive. On node b: b0 and b1 half, b2 empty. On node m: m0-0 and m1-0 half, m0-1 empty.
func TestAdmissible(t *testing.T) {
	b, ab, m := []string{"b"}, []string{"a", "b"}, []string{"m"}
	mig := note(kube.AnnotationSlice, share.AnyMIG)
	for name, test := range map[string]struct {
		pod  spec
		want []string
	}{
		"beside both slots":     {spec{sm: 40, quota: 80}, ab},
		"too long for a0":       {spec{sm: 41, quota: 40}, b},
		"whole":                 {spec{sm: 100}, b},
		"three halves":          {spec{sm: 50, vgpus: 3}, b},
		"four halves":           {spec{sm: 50, vgpus: 4}, nil},
		"elastic":               {spec{sm: 40, annotations: note(kube.AnnotationSMLimit, "60")}, ab},
		"elastic above γ":       {spec{sm: 40, annotations: note(kube.AnnotationSMLimit, "71")}, b},
		"other namespace":       {spec{sm: 10, tenant: "other"}, b},
		"two, other namespace":  {spec{sm: 10, tenant: "other", vgpus: 2}, nil},
		"model":                 {spec{sm: 10, annotations: note(kube.AnnotationModel, "H200")}, nil},
		"memory":                {spec{sm: 10, quota: 10, memory: 40960}, b},
		"more memory":           {spec{sm: 10, quota: 10, memory: 40961}, nil},
		"two MIG devices":       {spec{sm: 50, vgpus: 2, annotations: mig}, m},
		"two empty MIG devices": {spec{sm: 51, vgpus: 2, annotations: mig}, nil},
		"a profile of its own":  {spec{sm: 50, annotations: note(kube.AnnotationContainerSlice+"main", "1g.5gb")}, m},
		"a GPU of its own":      {spec{sm: 60, annotations: note(kube.AnnotationSlice, share.AnyMIG, kube.AnnotationContainerSlice+"main", "gpu")}, b},
		"CPU":                   {spec{sm: 10, cpu: 29}, b},
		"more CPU":              {spec{sm: 10, cpu: 32}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			c := clean(t)
			if got := c.check().Admissible(c.make(test.pod)); !reflect.DeepEqual(got, test.want) {
				t.Errorf("%v, want %v", got, test.want)
			}
		})
	}
}

func TestAdmissibleRectangles(t *testing.T) {
	c := newCluster(t)
	c.node("x", gpu("x0"))
	c.several(2, spec{node: "x", slices: []string{"x0"}, sm: 60, quota: 40, packing: kube.Rectangles})
	r := c.check()
	for _, test := range []struct {
		sm, quota int64
		scheduler string
		want      []string
	}{
		{60, 15, rectangleScheduler, []string{"x"}},
		{40, 100, rectangleScheduler, []string{"x"}},
		{60, 16, rectangleScheduler, nil}, // a rectangle, but no slot table with the reserve
		{60, 15, "gshare", nil},           // the slice holds rectangles
		{60, 15, "gshare-complementary", nil},
	} {
		t.Run(fmt.Sprint(test), func(t *testing.T) {
			pod := c.make(spec{sm: test.sm, quota: test.quota})
			pod.Spec.SchedulerName = test.scheduler
			if got := r.Admissible(pod); !reflect.DeepEqual(got, test.want) {
				t.Errorf("%+v: got %v", test, got)
			}
		})
	}
}

// Pods of the profile gshare-complementary are packed as slots, those of gshare-rectangle are not.
func TestAdmissibleSlots(t *testing.T) {
	c := newCluster(t)
	c.node("x", gpu("x0"))
	c.several(2, spec{node: "x", slices: []string{"x0"}, sm: 40, quota: 50})
	r := c.check()
	for scheduler, want := range map[string][]string{"gshare": {"x"}, "gshare-complementary": {"x"}, rectangleScheduler: nil} {
		t.Run(scheduler, func(t *testing.T) {
			pod := c.make(spec{sm: 60, quota: 40})
			pod.Spec.SchedulerName = scheduler
			if got := r.Admissible(pod); !reflect.DeepEqual(got, want) {
				t.Errorf("got %v, want %v", got, want)
			}
		})
	}
}

// TestAdmissibleOnNode changes what nodes say of themselves until none takes the pod.
func TestAdmissibleOnNode(t *testing.T) {
	for name, change := range map[string]func(*cluster){
		"cordoned":     func(c *cluster) { c.nodes[0].Spec.Unschedulable = true },
		"tainted":      func(c *cluster) { c.nodes[0].Spec.Taints = []v1.Taint{{Key: "k", Effect: v1.TaintEffectNoSchedule}} },
		"full of pods": func(c *cluster) { c.nodes[0].Status.Allocatable[v1.ResourcePods] = resource.MustParse("1") },
		"out of ours":  func(c *cluster) { c.nodes[0].Status.Allocatable[kube.ResourceVGPU] = resource.MustParse("1") },
		"no memory": func(c *cluster) {
			c.pods[0].Spec.Containers[0].Resources.Requests[v1.ResourceMemory] = resource.MustParse("129Gi")
		},
		"not placeable": func(c *cluster) { delete(c.pods[0].Annotations, kube.AnnotationPlacement) },
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t)
			c.node("x", gpu("x0"))
			c.add(spec{name: "there", node: "x", slices: []string{"x0"}, sm: 10})
			pod := c.make(spec{sm: 10})
			pod.Spec.Containers[0].Resources.Requests[v1.ResourceMemory] = resource.MustParse("1Gi")
			if got := c.check().Admissible(pod); len(got) != 1 {
				t.Fatalf("before: %v", got)
			}
			change(c)
			if got := c.check().Admissible(pod); got != nil {
				t.Errorf("%v", got)
			}
		})
	}
}

func TestAdmissibleSelectors(t *testing.T) {
	c := clean(t)
	c.nodes[0].Labels = map[string]string{"disk": "fast"}
	pod := c.make(spec{sm: 10})
	pod.Spec.NodeSelector = map[string]string{"disk": "fast"}
	if got := c.check().Admissible(pod); !reflect.DeepEqual(got, []string{"b"}) {
		t.Errorf("got %v", got)
	}
}

func TestAdmissibleWithoutGPU(t *testing.T) {
	c := clean(t)
	if got := c.check().Admissible(v1.Pod{}); !reflect.DeepEqual(got, []string{"a", "b", "m"}) {
		t.Errorf("got %v", got)
	}
	if got := (Report{}).Admissible(v1.Pod{}); got != nil {
		t.Errorf("the empty report admits to %v", got)
	}
	if got := c.check().Admissible(c.make(spec{sm: 50, annotations: note(kube.AnnotationIsolation, "any")})); got != nil {
		t.Errorf("a request that is refused: %v", got)
	}
}
