package admission_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"github.com/gshare-dev/gshare/vgpu/kube"
)

// completedPod is what pod() requests after the defaults have been filled in.
const completedPod = "vgpu 1 sm 24 quota 100 time 2400 mem 8192"

// goodPods are accepted. want is what the first container then requests.
var goodPods = map[string]struct {
	pod  *v1.Pod
	want string
}{
	"least":             {pod(), completedPod},
	"quota":             {pod(limits("quota=40")), "vgpu 1 sm 24 quota 40 time 960 mem 8192"},
	"whole GPU":         {pod(limits("sm=100")), "vgpu 1 sm 100 quota 100 time 10000 mem 8192"},
	"two GPUs' worth":   {pod(limits("sm=200")), "vgpu 2 sm 200 quota 100 time 20000 mem 8192"},
	"parts, alone":      {pod(limits("sm=150"), says("isolation", "exclusive")), "vgpu 2 sm 150 quota 100 time 15000 mem 8192"},
	"four vGPUs":        {pod(limits("vgpu=4"), says("isolation", "exclusive"), says("sm-limit", "100")), "vgpu 4 sm 24 quota 100 time 2400 mem 8192"},
	"all written":       {pod(limits("quota=50", "vgpu=1", "sm-time=1200")), "vgpu 1 sm 24 quota 50 time 1200 mem 8192"},
	"in other spelling": {pod(limits("sm=24000m", "mem=8Ki")), completedPod},
	"size":              {pod(limits("mem="), says("mem", "8Gi")), completedPod},
	"size for all":      {pod(limits("mem="), says("mem", "8192Mi"), another(container("second", "sm=10")), another(container("own", "sm=5", "mem=7"))), completedPod},
	"size, two GPUs":    {pod(limits("sm=200", "mem="), says("mem", "1Ti")), "vgpu 2 sm 200 quota 100 time 20000 mem 1048576"},
	"size of a model":   {pod(says("mem", "2Gi"), sidecar(container("model", "sm=3"))), completedPod},
	"weights":           {pod(says("weights", digest+"=2634Mi")), completedPod},
	"wish":              {pod(says("packing", "spread"), says("anti-affinity", "bert")), completedPod},
	"elastic": {pod(says("sm-limit", "48"), says("isolation", "elastic"), says("workload", "resnet")),
		completedPod},
	"mps": {pod(limits("quota=40"), says("quota-limit", "80"), says("sm-limit", "24"), says("isolation", "mps"), says("class", "slo")),
		"vgpu 1 sm 24 quota 40 time 960 mem 8192"},
	"all words": {pod(says("model", "A100, NVIDIA H200,A100"), says("slice", "1g.18gb+me"), says("enforcement", "best-effort"), says("class", "best-effort"),
		says("isolation", "exclusive")), completedPod},
	"with sidecars": {pod(limits("cpu=1"), another(container("log")), initially(container("init", "cpu=1")), sidecar(container("model", "sm=3", "mem=1"))),
		completedPod},
	"slices of stages": {pod(limits("sm=100"), another(container("second", "sm=100", "mem=7")), sidecar(container("model", "sm=3", "mem=1")), says("slice", "mig"),
		says("slice.second", "3g.40gb"), says("slice.model", "1g.10gb"), says("slice.main", "")), "vgpu 1 sm 100 quota 100 time 10000 mem 8192"},
	"other scheduler": {pod(func(p *v1.Pod) { p.Spec.SchedulerName = "gshare-rectangle" }), completedPod},
	"harmless":        {pod(hostPath("/dev/infiniband"), env("LD_PRELOAD"), env("CUDA_VISIBLE_DEVICES"), env("GSHARE_LOG"), mount("/dev/shm")), completedPod},
	"of the second":   {pod(another(container("second")), env("LD_PRELOAD"), env("LD_AUDIT"), mount("/run/gshare")), completedPod},
	"profiler":        {pod(initially(capable(container("init"), "SYS_PTRACE"))), completedPod},
	"by default name": {pod(func(p *v1.Pod) { p.Spec.SchedulerName = v1.DefaultSchedulerName }), completedPod},
}

// testGood: the policies complete a pod exactly as kube.Complete does, and change nothing else.
func (c *cluster) testGood(t *testing.T, completed map[string]*v1.Pod) {
	for name, tc := range goodPods {
		got := c.must(t, name, tc.pod)
		if diff := cmp.Diff(completed[name], got); diff != "" {
			t.Errorf("%s (-completed by package kube +by the policies):\n%s", name, diff)
		}
		for _, list := range []v1.ResourceList{got.Spec.Containers[0].Resources.Limits, got.Spec.Containers[0].Resources.Requests} {
			if text := numbers(list); text != tc.want {
				t.Errorf("%s asks for %s, want %s", name, text, tc.want)
			}
		}
	}
}

func numbers(list v1.ResourceList) string {
	value := func(name v1.ResourceName) int64 { q := list[name]; return q.Value() }
	return fmt.Sprintf("vgpu %d sm %d quota %d time %d mem %d", value(kube.ResourceVGPU), value(kube.ResourceSM),
		value(kube.ResourceQuota), value(kube.ResourceSMTime), value(kube.ResourceMemory))
}
