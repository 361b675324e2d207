package live

import (
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/gshare-dev/gshare/cmd/gshare/internal/usage"
	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/mig"
)

// gpuShare is the share of one GPU that a converted container requests: percent of SMs, percent of time, and MiB of memory.
type gpuShare struct{ sm, quota, memory int64 }

// convert returns the gshare resources that replace a hold on GPUs, or none if it is of none.
func (r *reader) convert(node *gpuNode, pod *v1.Pod, c *v1.Container, h hold) v1.ResourceRequirements {
	if h.devices == 0 {
		return v1.ResourceRequirements{}
	}
	p := r.shareFor(node, pod, c, h)
	p.memory = min(max(1, p.memory), node.memory)
	return v1.ResourceRequirements{Limits: v1.ResourceList{
		kube.ResourceSM:     quantity(h.devices * p.sm),
		kube.ResourceQuota:  quantity(p.quota),
		kube.ResourceMemory: quantity(h.devices * p.memory),
		kube.ResourceVGPU:   quantity(h.devices),
	}}
}

// shareFor returns the share that a container would request of each GPU with gshare: its measured use, else what its resources state, else what
// a GPUProfile recommends for its image, else the assumption. A container with several whole GPUs keeps them whole, because most such pods are
// training jobs that use them fully.
func (r *reader) shareFor(node *gpuNode, pod *v1.Pod, c *v1.Container, h hold) gpuShare {
	whole := gpuShare{sm: 100, quota: 100, memory: node.memory}
	measured, known := r.options.Usage[usage.Pod{Namespace: pod.Namespace, Name: pod.Name}]
	profile := node.profileOf(h)
	memory, cores := node.sizeOf(h)
	switch {
	case !h.nvidia:
		r.whole++
		return whole
	case known:
		r.measured++
		return gpuShare{sm: measured.SM, quota: 100, memory: measured.MemoryMiB}
	case profile != "":
		r.instances++
		return migShare(profile, whole).divided(node.replicas)
	case h.sized():
		if h.cores == 0 {
			r.coreless++
		}
		return gpuShare{sm: limitTo(cores, 100), quota: 100, memory: limitTo(memory, node.memory)}
	case h.shared(node):
		return gpuShare{sm: max(1, 100/node.replicas), quota: 100, memory: node.memory / node.replicas}
	case h.devices > 1:
		r.whole++
		return whole
	}
	p, match := r.options.Profiles.For(usage.Container{ImageID: imageOf(pod, c), Command: c.Command, Args: c.Args, Model: node.Model})
	if match == usage.Same {
		r.profiled[p]++
		return gpuShare{sm: p.SM, quota: p.Quota, memory: p.MemoryMiB}
	}
	r.unlike[match]++
	r.assumed++
	a := r.options.Assume
	return gpuShare{sm: a.SM, quota: a.Quota, memory: a.Memory(node.memory)}
}

// imageOf returns the image ID that the kubelet reports for a container. Until it reports one, that is the pod's image if it has a digest, else
// an empty string.
func imageOf(pod *v1.Pod, c *v1.Container) string {
	for _, statuses := range [][]v1.ContainerStatus{pod.Status.ContainerStatuses, pod.Status.InitContainerStatuses} {
		for i := range statuses {
			if statuses[i].Name == c.Name && statuses[i].ImageID != "" {
				return statuses[i].ImageID
			}
		}
	}
	if strings.Contains(c.Image, "@") {
		return c.Image
	}
	return ""
}

// limitTo returns a stated amount limited to all, or all if no amount is stated.
func limitTo(stated, all int64) int64 {
	if stated == 0 {
		return all
	}
	return min(stated, all)
}

// mibOfGB is 10^9 bytes in MiB, rounded down: a MIG instance has slightly less memory than the GB in the name of its profile.
const mibOfGB = 953

// migShare returns a share with the size of a MIG instance. Percentages are rounded down, so that as many such shares as instances fit on a
// GPU; even so they have more SMs than the seven compute slices of an A100.
func migShare(profile string, otherwise gpuShare) gpuShare {
	p, compute := profileNamed(profile)
	if p == nil {
		return otherwise
	}
	return gpuShare{sm: int64(100 * p.Compute / compute), quota: 100, memory: mibOfGB * int64(p.MemoryGB)}
}

// divided returns the part that one of several replicas of a MIG instance has.
func (s gpuShare) divided(replicas int64) gpuShare {
	return gpuShare{sm: max(1, s.sm/replicas), quota: s.quota, memory: s.memory / replicas}
}

func quantity(n int64) resource.Quantity { return *resource.NewQuantity(n, resource.DecimalSI) }

// Resources of NVIDIA's device plugin. The plugin may rename time-sliced GPUs to shared.
const (
	nvidiaGPU    v1.ResourceName = "nvidia.com/gpu"
	nvidiaShared v1.ResourceName = "nvidia.com/gpu.shared"
	nvidiaMIG                    = "nvidia.com/mig-"
)

// Labels of NVIDIA's GPU feature discovery.
const (
	labelProduct  = "nvidia.com/gpu.product"
	labelCount    = "nvidia.com/gpu.count"
	labelMemory   = "nvidia.com/gpu.memory" // MiB of one device
	labelReplicas = "nvidia.com/gpu.replicas"
)

// Labels of GKE and Koordinator.
const (
	labelAccelerator      = "cloud.google.com/gke-accelerator"
	labelAcceleratorCount = "cloud.google.com/gke-accelerator-count"
	labelClients          = "cloud.google.com/gke-max-shared-clients-per-gpu"
	labelPartition        = "cloud.google.com/gke-gpu-partition-size"
	labelKoordinatorModel = "node.koordinator.sh/gpu-model"
)

// otherVendors holds the extended resources for whole GPUs of other vendors, which gshare cannot share.
var otherVendors = []v1.ResourceName{"amd.com/gpu", "gpu.intel.com/i915", "gpu.intel.com/xe", "habana.ai/gaudi"}

// sizeResources holds the extended resources by which pods request memory (MiB, or percent) and cores (percent) of each GPU from other
// GPU-sharing device plugins.
var sizeResources = []struct{ count, memory, percent, cores v1.ResourceName }{
	// HAMi
	{nvidiaGPU, "nvidia.com/gpumem", "nvidia.com/gpumem-percentage", "nvidia.com/gpucores"},
	// Volcano
	{"volcano.sh/vgpu-number", "volcano.sh/vgpu-memory", "volcano.sh/vgpu-memory-percentage", "volcano.sh/vgpu-cores"},
}

// Resources of Koordinator. All but the number of shared GPUs and the memory in bytes are percentages of a GPU, added up over all GPUs.
const (
	koordinatorGPU    v1.ResourceName = "koordinator.sh/gpu"
	koordinatorShared v1.ResourceName = "koordinator.sh/gpu.shared"
	koordinatorCore   v1.ResourceName = "koordinator.sh/gpu-core"
	koordinatorMemory v1.ResourceName = "koordinator.sh/gpu-memory"
	koordinatorRatio  v1.ResourceName = "koordinator.sh/gpu-memory-ratio"
)

// knownResources returns a list, for error messages, of the extended resources by which GPUs are recognized.
func knownResources() string {
	names := []string{"gshare's inventory", string(nvidiaGPU), string(nvidiaShared), nvidiaMIG + "*", string(sizeResources[1].count), string(koordinatorGPU)}
	for _, n := range otherVendors {
		names = append(names, string(n))
	}
	return strings.Join(names, ", ")
}

// poolLabels holds the node labels with the name of the node pool, by cloud provider or autoscaler.
var poolLabels = []string{
	"cloud.google.com/gke-nodepool", "eks.amazonaws.com/nodegroup", "kubernetes.azure.com/agentpool", "karpenter.sh/nodepool",
}

func poolOf(n *v1.Node) string {
	for _, label := range poolLabels {
		if pool := n.Labels[label]; pool != "" {
			return pool
		}
	}
	return ""
}

// quantityOf returns the quantity of a resource as an integer, limited to the range from 0 to maxLabel.
func quantityOf(list v1.ResourceList, name v1.ResourceName) int64 {
	q := list[name]
	return max(0, min(q.Value(), maxLabel))
}

// profileNamed returns the MIG profile that a resource name contains, and the number of compute slices of a GPU with that profile, or nil.
// Resource names have .me in place of +me, and the suffix .shared for time-sliced instances, which count as whole ones.
func profileNamed(name string) (p *mig.Profile, compute int) {
	name = strings.Replace(strings.TrimSuffix(name, ".shared"), ".me", "+me", 1)
	for _, m := range mig.Models() {
		if p, ok := m.Profile(name); ok {
			return p, m.Compute
		}
	}
	return nil, 0
}
