package profiles

import (
	"cmp"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
	"github.com/gshare-dev/gshare/vgpu/kube"
)

// device is a kind of whole GPU. A share with all of its memory has the GPU to itself, because no memory is left for others.
type device struct {
	model     string
	sms       int
	memoryMiB int64
}

// deviceOf returns the GPU with the most memory of the given model among the nodes' GPUs. Without a model, it takes the most frequent one.
func deviceOf(nodes []v1.Node, model string) (device, bool) {
	count := map[string]int{}
	largest := map[string]device{}
	for at := range nodes {
		for _, s := range slicesOf(&nodes[at]) {
			if s.Profile != "" {
				continue
			}
			count[s.Model]++
			if s.MemoryMiB > largest[s.Model].memoryMiB {
				largest[s.Model] = device{s.Model, s.SMs, s.MemoryMiB}
			}
		}
	}
	if model == "" {
		for m, n := range count {
			if model == "" || cmp.Or(cmp.Compare(n, count[model]), cmp.Compare(model, m)) > 0 {
				model = m
			}
		}
	}
	d, known := largest[model]
	return d, known
}

// slicesOf returns the slices of a node. It returns none if the node's inventory cannot be read; the scheduler reports that.
func slicesOf(n *v1.Node) []kube.Slice {
	inventory, present, err := kube.InventoryOf(n)
	if err != nil || !present {
		return nil
	}
	return inventory.Slices
}

// labelDriver is the node label with the version of the GPU driver, set by NVIDIA's GPU feature discovery.
const labelDriver = "nvidia.com/cuda.driver-version.full"

// fingerprintOf returns the fingerprint of a running target and its GPU, or nil while that is not known.
func fingerprintOf(target *v1.Pod, nodes []v1.Node, version string) *api.ProfileFingerprint {
	if target == nil || len(target.Status.ContainerStatuses) == 0 {
		return nil
	}
	placement, err := kube.DecodePlacement(target.Annotations[kube.AnnotationPlacement])
	if err != nil || len(placement.Containers) == 0 || placement.UID != target.UID {
		return nil
	}
	name := target.Spec.Containers[0].Name
	image := slices.IndexFunc(target.Status.ContainerStatuses, func(c v1.ContainerStatus) bool { return c.Name == name })
	node := slices.IndexFunc(nodes, func(n v1.Node) bool { return n.Name == target.Spec.NodeName })
	if image < 0 || node < 0 {
		return nil
	}
	for _, s := range slicesOf(&nodes[node]) {
		if s.ID == placement.Containers[0].VGPUs[0].Slice {
			return &api.ProfileFingerprint{
				Image: bounded(target.Status.ContainerStatuses[image].ImageID, maxImage), Model: bounded(s.Model, 64), SMs: int32(s.SMs), MemoryMiB: s.MemoryMiB,
				Driver: bounded(nodes[node].Labels[labelDriver], 64), Gshare: bounded(version, 128),
			}
		}
	}
	return nil
}

// memoryOf returns the device memory that a pod may use, in MiB.
func memoryOf(p *v1.Pod) int64 {
	memory := p.Spec.Containers[0].Resources.Limits[kube.ResourceMemory]
	return memory.Value()
}

// usedMiB returns the most device memory that a server has used, as reported by the agent of its node; 0 if that is not known. The agent looks only every
// few seconds, so it may miss the latest allocations. It sees them in the next trial on the same server, such as the one that confirms the best trial.
func usedMiB(target *v1.Pod) int64 {
	if target == nil {
		return 0
	}
	status, _, err := kube.EnforcementStatusOf(target)
	if err != nil {
		return 0 // written by another version
	}
	for _, c := range status.Containers {
		if c.Name == target.Spec.Containers[0].Name {
			return max(0, min(c.MemoryPeakMiB, memoryOf(target))) // bounded, because anyone who may change the pod can claim more
		}
	}
	return 0
}

// bounded returns a text, which may come from others, shortened to at most the given number of bytes.
func bounded(text string, most int) string {
	if text = strings.ToValidUTF8(text, "?"); len(text) > most {
		text = strings.ToValidUTF8(text[:most-3], "") + "..."
	}
	return text
}
