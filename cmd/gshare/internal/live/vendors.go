package live

import (
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/gshare-dev/gshare/vgpu/mig"
)

// Resources of NVIDIA's device plugin. Time-sliced GPUs are called shared where the plugin renames them.
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

// otherWhole are whole GPUs of other makers. gshare does not share them; they are counted as they are.
var otherWhole = []v1.ResourceName{"amd.com/gpu", "gpu.intel.com/i915", "gpu.intel.com/xe", "habana.ai/gaudi"}

// stated are the plugins that let a pod state memory (MiB for each GPU) and cores (percent) beside a number of GPUs.
var stated = []struct{ count, memory, cores v1.ResourceName }{
	{nvidiaGPU, "nvidia.com/gpumem", "nvidia.com/gpucores"},                       // HAMi
	{"volcano.sh/vgpu-number", "volcano.sh/vgpu-memory", "volcano.sh/vgpu-cores"}, // Volcano
}

func knownResources() string {
	names := []string{"gshare's inventory", string(nvidiaGPU), string(nvidiaShared), nvidiaMIG + "*", string(stated[1].count)}
	for _, n := range otherWhole {
		names = append(names, string(n))
	}
	return strings.Join(names, ", ")
}

// poolLabels name the pool of a node, by maker of the cluster.
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

// count reads a number of devices, MiB or percent.
func count(list v1.ResourceList, name v1.ResourceName) int64 {
	q := list[name]
	return max(0, min(q.Value(), maxLabel))
}

// profileNamed finds a MIG profile, and how many compute slices a GPU that has it has. Resource names write +me as .me, and
// .shared behind the profile where instances are time-sliced; those count as entire.
func profileNamed(name string) (p *mig.Profile, compute int) {
	name = strings.Replace(strings.TrimSuffix(name, ".shared"), ".me", "+me", 1)
	for _, m := range mig.Models() {
		if p, ok := m.Profile(name); ok {
			return p, m.Compute
		}
	}
	return nil, 0
}
