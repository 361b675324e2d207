package live

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/gshare-dev/gshare/cmd/gshare/internal/usage"
	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/mig"
	"github.com/gshare-dev/gshare/vgpu/packing"
	"github.com/gshare-dev/gshare/vgpu/share"
	"github.com/gshare-dev/gshare/vgpu/whatif"
)

func (r *reader) readPods(pods []*v1.Pod) {
	slices.SortFunc(pods, func(a, b *v1.Pod) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	known := make([]gpuUse, len(pods))
	for i, pod := range pods {
		if !kube.Ended(pod) {
			known[i] = r.useOf(pod)
		}
	}
	for i, pod := range pods {
		if !kube.Ended(pod) {
			r.readPod(pod, known[i])
		}
	}
}

// gpuUse is what a pod holds of GPUs.
type gpuUse struct {
	holds   map[string]hold // by container; none for pods with shares of gshare
	devices []string        // physical GPUs, each as often as it is used, if they are known
	any     bool
}

// useOf returns what a pod holds, and counts it on its node. A pod that only reserves GPUs for others holds none.
func (r *reader) useOf(pod *v1.Pod) (u gpuUse) {
	node := r.byName[pod.Spec.NodeName]
	if reserves(pod) {
		if node != nil {
			node.reserved += node.heldByHolds(pod, holdsOf(pod, nil))
		}
		return u
	}
	var claimed []driverDevice
	if pod.Spec.NodeName != "" {
		var err error
		if claimed, err = r.claims.devicesOf(pod); err != nil {
			r.doubt(pod, err.Error())
		}
	}
	if !kube.RequestsShare(pod) {
		u.holds = holdsOf(pod, claimed)
	}
	u.any = kube.RequestsShare(pod) || len(u.holds) > 0
	if node == nil || !u.any {
		return u
	}
	u.devices = node.namedDevices(pod, claimed)
	for _, device := range u.devices {
		node.inUse[device]++
	}
	for _, h := range u.holds {
		if h.resource == annotationFraction {
			node.fractions += h.devices
		}
	}
	return u
}

// heldBy returns how many of the node's physical GPUs, as a fractional number, the pod occupies today. A GPU that is known is divided
// evenly among its users, so that they add up to one. So are GPUs that are reserved for fractions.
func (g *gpuNode) heldBy(pod *v1.Pod, u gpuUse) (sum packing.MilliGPU) {
	if len(u.devices) > 0 || kube.RequestsShare(pod) {
		for _, device := range u.devices {
			sum += packing.WholeGPU / packing.MilliGPU(g.inUse[device])
		}
		return sum
	}
	if g.reserved > 0 {
		for _, h := range u.holds {
			if h.resource == annotationFraction {
				return g.reserved * packing.MilliGPU(h.devices) / packing.MilliGPU(g.fractions)
			}
		}
	}
	return g.heldByHolds(pod, u.holds)
}

// fits reports whether gshare accepts the pod where it is, with what it would request: it has whole GPUs for itself, or a share of gshare.
func (g *gpuNode) fits(pod *v1.Pod, u gpuUse) bool {
	if kube.RequestsShare(pod) {
		return len(u.devices) > 0
	}
	for _, device := range u.devices {
		if g.inUse[device] > 1 {
			return false
		}
	}
	for _, h := range u.holds {
		if h.resource == annotationFraction || g.fraction(h) != packing.WholeGPU {
			return false
		}
	}
	return true
}

// readPod converts a pod that has not terminated: one with GPUs as a pod to pack, another one on a GPU node as used CPU and memory.
func (r *reader) readPod(pod *v1.Pod, u gpuUse) {
	if !reserves(pod) {
		r.checkPod(pod, u.any || len(pod.Spec.ResourceClaims) > 0)
	}
	node := r.byName[pod.Spec.NodeName]
	wanted := len(r.options.Namespaces) == 0 || slices.Contains(r.options.Namespaces, pod.Namespace)
	switch {
	case u.any && wanted && pod.Spec.NodeName == "":
		r.waiting++
	case node == nil:
	case !u.any:
		cpu, ram := cpuAndMemory(pod)
		node.CPU -= cpu
		node.RAM -= ram
	case !wanted:
		r.foreign++
	default:
		r.pods = append(r.pods, r.gpuPod(node, pod, u))
	}
}

// gpuPod converts a pod with GPUs. If its request is invalid, it counts as a request for whole GPUs.
func (r *reader) gpuPod(node *gpuNode, pod *v1.Pod, u gpuUse) whatif.Pod {
	name := pod.Namespace + "/" + pod.Name
	out := whatif.Pod{Name: name, Node: node.Name, Held: node.heldBy(pod, u), Fits: node.fits(pod, u)}
	out.Tenant = pod.Namespace
	out.CPU, out.RAM = cpuAndMemory(pod)
	request, err := r.request(node, pod, u.holds)
	if err != nil {
		r.refused = append(r.refused, fmt.Sprintf("%s: %v", name, err))
		request = wholeRequest(node, out.Held)
	}
	out.Request = request
	return out
}

// request returns the pod's request converted to gshare's resources. The scheduler's own code parses it, with the pod's annotations. A
// function's instance that has given up its SM-time, or is parked, counts as much as it does for the scheduler; one that takes turns
// with others on its slice counts with its whole share.
func (r *reader) request(node *gpuNode, pod *v1.Pod, holds map[string]hold) (share.Request, error) {
	if kube.RequestsShare(pod) {
		request, _, err := kube.RequestOf(pod)
		if request.Isolation == share.Swap {
			return request, err
		}
		for at := range request.Containers {
			c := &request.Containers[at]
			c.Share = kube.LevelOf(pod).Charge(c.Share, kube.KeptOf(pod))
		}
		return request, err
	}
	pod = pod.DeepCopy()
	for _, c := range pod.Spec.InitContainers {
		if holds[c.Name].devices > 0 && !sidecar(&c) {
			return share.Request{}, fmt.Errorf("init container %s has GPUs, and gshare gives no share to one that ends", c.Name)
		}
	}
	for c := range containersOf(pod) {
		c.Resources = r.convert(node, pod, c, holds[c.Name])
	}
	kube.Complete(pod)
	request, _, err := kube.RequestOf(pod)
	return request, err
}

// wholeRequest returns a request for as many whole GPUs as the pod occupies.
func wholeRequest(node *gpuNode, held packing.MilliGPU) share.Request {
	gpus := int(max(1, min(share.MaxVGPUs, (held+packing.WholeGPU-1)/packing.WholeGPU)))
	sh := share.Share{SMRequest: share.Whole, SMLimit: share.Whole, QuotaRequest: share.Whole, QuotaLimit: share.Whole,
		Memory: share.Bytes(node.memory) * share.MiB}
	return share.Request{Containers: []share.Container{{VGPUs: gpus, Share: sh}}}
}

// cpuAndMemory returns the CPU and memory that a pod requests.
func cpuAndMemory(pod *v1.Pod) (packing.MilliCPU, share.Bytes) {
	asked := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})
	return packing.MilliCPU(asked.Cpu().MilliValue()), share.Bytes(asked.Memory().Value())
}

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
