package kube

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
)

func TestComplete(t *testing.T) {
	cases := map[string]struct {
		given, want v1.Container
	}{
		"one vGPU":        {container("m", "sm=24", "mem=1"), container("m", "sm=24", "mem=1", "vgpu=1", "quota=100", "sm-time=2400")},
		"vGPUs round up":  {container("m", "sm=201", "mem=3"), container("m", "sm=201", "mem=3", "vgpu=3", "quota=100", "sm-time=20100")},
		"whole vGPUs":     {container("m", "sm=200", "mem=3"), container("m", "sm=200", "mem=3", "vgpu=2", "quota=100", "sm-time=20000")},
		"nothing to do":   {container("m", "sm=60", "vgpu=2", "quota=50", "sm-time=1"), container("m", "sm=60", "vgpu=2", "quota=50", "sm-time=1")},
		"quota is used":   {container("m", "sm=24", "quota=40"), container("m", "sm=24", "quota=40", "vgpu=1", "sm-time=960")},
		"bad quota stays": {container("m", "sm=24", "quota=500m"), container("m", "sm=24", "quota=500m", "vgpu=1")},
		"bad sm stays":    {container("m", "sm=0", "mem=1"), container("m", "sm=0", "mem=1")},
		"huge sm stays":   {container("m", "sm=1e30"), container("m", "sm=1e30")},
		"no sm":           {container("m", "mem=1"), container("m", "mem=1")},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			pod := podOf(nil, tc.given)
			Complete(pod)
			got := pod.Spec.Containers[0].Resources
			if diff := cmp.Diff(tc.want.Resources.Limits, got.Limits); diff != "" {
				t.Errorf("limits (-want +got):\n%s", diff)
			}
			if got.Requests != nil && !cmp.Equal(got.Limits, got.Requests) {
				t.Errorf("requests %v are not the limits %v", got.Requests, got.Limits)
			}
			if pod.Spec.SchedulerName != SchedulerName {
				t.Errorf("scheduler is %q", pod.Spec.SchedulerName)
			}
		})
	}
}

func TestCompleteFillsInTheMemory(t *testing.T) {
	cases := map[string]struct {
		says string
		want []int64 // MiB of each container; 0: none
	}{
		"a size":       {"16Gi", []int64{16384, 4, 16384, 0}},
		"no size":      {"", []int64{0, 4, 0, 0}},
		"not a size":   {"16G", []int64{0, 4, 0, 0}},
		"out of range": {"1025Ti", []int64{0, 4, 0, 0}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			pod := podOf(map[string]string{AnnotationMemory: tc.says},
				container("least", "sm=24"), container("own", "sm=24", "mem=4"), container("two", "sm=200"), container("plain"))
			Complete(pod)
			for i, want := range tc.want {
				limits, requests := pod.Spec.Containers[i].Resources.Limits[ResourceMemory], pod.Spec.Containers[i].Resources.Requests[ResourceMemory]
				if limits.Value() != want || requests.Value() != want {
					t.Errorf("container %d has limit %s and request %s, want %d", i, &limits, &requests, want)
				}
			}
		})
	}
}

func TestCompleteMakesAValidPod(t *testing.T) {
	pod := withInit(podOf(nil, container("m", "sm=300", "mem=3")), sidecar(container("s", "sm=1", "mem=1")))
	pod.Spec.SchedulerName = "gshare-rectangle"
	Complete(pod)
	req, _, err := RequestOf(pod)
	if err != nil || len(req.Containers) != 2 || req.Containers[1].VGPUs != 3 {
		t.Errorf("RequestOf = %+v, %v", req, err)
	}
	if pod.Spec.SchedulerName != "gshare-rectangle" {
		t.Errorf("the scheduler became %q", pod.Spec.SchedulerName)
	}
}

func TestCompleteLeavesOthersAlone(t *testing.T) {
	pod := withInit(podOf(nil, container("m")), container("init"))
	before := pod.DeepCopy()
	Complete(pod)
	if diff := cmp.Diff(before, pod); diff != "" {
		t.Errorf("a pod without a share changed:\n%s", diff)
	}
}
