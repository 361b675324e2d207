package live

import (
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/gshare-dev/gshare/vgpu/mig"
)

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

// otherVendors holds the extended resources for whole GPUs of other vendors, which gshare cannot share.
var otherVendors = []v1.ResourceName{"amd.com/gpu", "gpu.intel.com/i915", "gpu.intel.com/xe", "habana.ai/gaudi"}

// sizeResources holds the extended resources by which pods request memory (MiB) and cores (percent) of each GPU from other GPU-sharing device
// plugins.
var sizeResources = []struct{ count, memory, cores v1.ResourceName }{
	{nvidiaGPU, "nvidia.com/gpumem", "nvidia.com/gpucores"},                       // HAMi
	{"volcano.sh/vgpu-number", "volcano.sh/vgpu-memory", "volcano.sh/vgpu-cores"}, // Volcano
}

// knownResources returns a list, for error messages, of the extended resources by which GPUs are recognized.
func knownResources() string {
	names := []string{"gshare's inventory", string(nvidiaGPU), string(nvidiaShared), nvidiaMIG + "*", string(sizeResources[1].count)}
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
