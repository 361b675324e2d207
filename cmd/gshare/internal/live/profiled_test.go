package live

import (
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/gshare-dev/gshare/cmd/gshare/internal/usage"
	"github.com/gshare-dev/gshare/serving/api/profileview"
	"github.com/gshare-dev/gshare/vgpu/share"
)

const recorded = `apiVersion: v1
kind: List
items:
- apiVersion: serving.gshare.dev/v1alpha1
  kind: GPUProfile
  metadata: {name: resnet50, namespace: ml}
  spec: {functionRef: {name: resnet50}}
  status:
    conditions: [{type: Complete, status: "True", reason: Measured}]
    fingerprint: {image: "registry.example/resnet50@sha256:2b8a1f4c", model: A100}
    recommended: {sm: 20, quota: 80, memory: 1525Mi, maxBatch: 8, requestsPerSecond: 34.9}
- apiVersion: serving.gshare.dev/v1alpha1
  kind: GPUProfile
  metadata: {name: gpt, namespace: ml}
  spec: {template: {spec: {containers: [{name: server, image: "registry.example/resnet50:1", command: [serve], args: [gpt]}]}}}
  status:
    conditions: [{type: Complete, status: "True", reason: Measured}]
    fingerprint: {image: "registry.example/resnet50@sha256:2b8a1f4c", model: A100}
    recommended: {sm: 60, quota: 100, memory: 2Gi, maxBatch: 8, requestsPerSecond: 34.9}
- apiVersion: serving.gshare.dev/v1alpha1
  kind: GPUProfile
  metadata: {name: bert, namespace: ml}
  spec: {functionRef: {name: bert}}
  status:
    conditions: [{type: Complete, status: "False", reason: Measuring}]
`

func runs(image string) func(*v1.Pod) {
	return func(p *v1.Pod) { p.Status.ContainerStatuses = []v1.ContainerStatus{{Name: "main", ImageID: image}} }
}

// TestProfiled: a container with one whole GPU whose image was profiled counts with the share that the profile recommends, after measured use, and before the
// assumption. What resources state stays.
func TestProfiled(t *testing.T) {
	all, err := profileview.Decode(strings.NewReader(recorded))
	if err != nil {
		t.Fatal(err)
	}
	const image = "registry.example/resnet50@sha256:2b8a1f4c"
	gpu := []string{"nvidia.com/gpu", "1"}
	for name, test := range map[string]struct {
		limits    []string
		labels    map[string]string
		usage     usage.Table
		change    func(*v1.Pod)
		sm, quota share.PerMille
		memory    share.Bytes // MiB
		note      string
	}{
		"profiled":      {limits: gpu, change: runs(image), sm: 200, quota: 800, memory: 1525, note: "counted by GPUProfile ml/resnet50, sm=20,quota=80,mem=1525: 1"},
		"measured":      {limits: gpu, change: runs(image), usage: usage.Table{{Namespace: "ml", Name: "p"}: {SM: 23, MemoryMiB: 5000}}, sm: 230, quota: 1000, memory: 5000, note: "containers with measured use: 1"},
		"another image": {limits: gpu, change: runs("registry.example/resnet50@sha256:0000"), sm: 500, quota: 1000, memory: 40960, note: "assumed to need sm=50,quota=100,mem=50%: 1"},
		"its command": {limits: gpu, change: func(p *v1.Pod) {
			runs(image)(p)
			p.Spec.Containers[0].Command, p.Spec.Containers[0].Args = []string{"serve"}, []string{"gpt"}
		}, sm: 600, quota: 1000, memory: 2048, note: "counted by GPUProfile ml/gpt, sm=60,quota=100,mem=2048: 1"},
		"not started": {limits: gpu, change: func(*v1.Pod) {}, sm: 500, quota: 1000, memory: 40960, note: "GPUProfiles of which no container was counted: 2"},
		"pinned":      {limits: gpu, change: func(p *v1.Pod) { p.Spec.Containers[0].Image = image }, sm: 200, quota: 800, memory: 1525},
		"only by tag": {limits: gpu, change: func(p *v1.Pod) { p.Spec.Containers[0].Image = "registry.example/resnet50:1" }, sm: 500, quota: 1000, memory: 40960},
		"of another container": {limits: gpu, change: func(p *v1.Pod) {
			runs(image)(p)
			p.Status.ContainerStatuses[0].Name = "other"
		}, sm: 500, quota: 1000, memory: 40960},
		"a sidecar": {limits: gpu, change: func(p *v1.Pod) {
			always := v1.ContainerRestartPolicyAlways
			p.Spec.Containers[0].RestartPolicy = &always
			p.Spec.InitContainers, p.Spec.Containers = p.Spec.Containers, []v1.Container{{Name: "app"}}
			p.Status.InitContainerStatuses = []v1.ContainerStatus{{Name: "main", ImageID: image}}
		}, sm: 200, quota: 800, memory: 1525},
		"two GPUs":      {limits: []string{"nvidia.com/gpu", "2"}, change: runs(image), sm: 1000, quota: 1000, memory: 81920},
		"states a size": {limits: []string{"nvidia.com/gpu", "1", "nvidia.com/gpumem", "8192", "nvidia.com/gpucores", "30"}, change: runs(image), sm: 300, quota: 1000, memory: 8192},
		"time-sliced":   {limits: gpu, labels: with(a100, labelReplicas, "4"), change: runs(image), sm: 250, quota: 1000, memory: 20480},
		"gshare":        {limits: []string{"gshare/sm", "24", "gshare/quota", "40", "gshare/mem", "8192", "gshare/vgpu", "1"}, change: runs(image), sm: 240, quota: 400, memory: 8192},
		"another GPU":   {limits: gpu, labels: with(a100, labelProduct, "NVIDIA-A10"), change: runs(image), sm: 500, quota: 1000, memory: 40960, note: "of another model of GPU, or on a node without the label nvidia.com/gpu.product: 1"},
		"small GPU":     {limits: gpu, labels: with(a100, labelMemory, "1024"), change: runs(image), sm: 200, quota: 800, memory: 1024},
		"not complete":  {limits: gpu, change: runs(image), sm: 200, quota: 800, memory: 1525, note: "GPUProfile ml/bert is not used: it is not Complete"},
	} {
		t.Run(name, func(t *testing.T) {
			p := pod(t, "p", "n", test.limits...)
			test.change(p)
			labels := test.labels
			if labels == nil {
				labels = a100
			}
			c := mustRead(t, Options{Profiles: usage.NewProfiles(all), Usage: test.usage}, node(t, "n", labels, "nvidia.com/gpu", "4"), p)
			if len(c.Pods) != 1 || len(c.Pods[0].Request.Containers) != 1 {
				t.Fatalf("%+v", c.Pods)
			}
			if s := c.Pods[0].Request.Containers[0].Share; s.SMRequest != test.sm || s.QuotaRequest != test.quota || s.Memory != test.memory*share.MiB {
				t.Errorf("asks for %s, want %d, %d per mille and %d MiB", s, test.sm, test.quota, test.memory)
			}
			if !slices.ContainsFunc(c.Notes, func(n string) bool { return strings.Contains(n, test.note) }) {
				t.Errorf("no note says %q: %q", test.note, c.Notes)
			}
		})
	}
}
