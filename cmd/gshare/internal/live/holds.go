package live

import (
	"cmp"
	"iter"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/packing"
)

// hold is what a container holds of GPUs: a number of devices of its node's plugin or driver, each a GPU or a part of one.
type hold struct {
	resource string // by which it is requested, as pods count devices by resource
	devices  int64
	nvidia   bool   // gshare can share them
	profile  string // of MIG instances
	memory   int64  // MiB of each GPU, if stated
	percent  int64  // of the memory of each GPU, if stated
	cores    int64  // percent of each GPU, if stated
}

// sized reports whether the container states how much of each GPU it requests.
func (h hold) sized() bool { return h.memory > 0 || h.percent > 0 || h.cores > 0 }

// shared reports whether a device without a size is one of several replicas of a GPU.
func (h hold) shared(g *gpuNode) bool { return g.replicas > 1 && h.resource != fromClaims }

// fromClaims stands for a resource for devices of resource claims.
const fromClaims = "claims"

// holdOf returns what the container's resources request. MIG instances come first, as a container with both rarely exists.
func holdOf(limits v1.ResourceList) hold {
	for _, name := range slices.Sorted(maps.Keys(limits)) {
		if profile, ok := strings.CutPrefix(string(name), nvidiaMIG); ok && quantityOf(limits, name) > 0 {
			return hold{resource: string(name), devices: quantityOf(limits, name), nvidia: true, profile: profile}
		}
	}
	for _, s := range sizeResources {
		h := hold{resource: string(s.count), devices: quantityOf(limits, s.count), nvidia: true,
			memory: quantityOf(limits, s.memory), percent: quantityOf(limits, s.percent), cores: quantityOf(limits, s.cores)}
		if h.devices == 0 && h.sized() {
			h.devices = 1
		}
		if h.devices > 0 {
			return h
		}
	}
	if n := quantityOf(limits, nvidiaShared); n > 0 {
		return hold{resource: string(nvidiaShared), devices: n, nvidia: true}
	}
	if h := koordinatorHold(limits); h.devices > 0 {
		return h
	}
	for _, name := range otherVendors {
		if n := quantityOf(limits, name); n > 0 {
			return hold{resource: string(name), devices: n}
		}
	}
	return hold{}
}

// koordinatorHold returns what the resources of Koordinator request.
func koordinatorHold(limits v1.ResourceList) hold {
	both := quantityOf(limits, koordinatorGPU)
	cores, percent := max(both, quantityOf(limits, koordinatorCore)), max(both, quantityOf(limits, koordinatorRatio))
	bytes := limits[koordinatorMemory]
	devices := quantityOf(limits, koordinatorShared)
	if devices == 0 && (cores > 0 || percent > 0 || bytes.Value() > 0) {
		devices = max(1, ceil(max(cores, percent), 100))
	}
	if devices == 0 {
		return hold{}
	}
	h := hold{resource: string(koordinatorGPU), devices: devices, nvidia: true,
		cores: cores / devices, percent: percent / devices, memory: min(bytes.Value()>>20/devices, maxLabel)}
	if h.cores >= 100 && h.percent >= 100 {
		h.cores, h.percent, h.memory = 0, 0, 0 // whole GPUs
	}
	return h
}

// fractionHold returns the hold of a pod whose annotations request a fraction of GPUs from KAI or Run:ai, which give none to a pod that
// requests devices as well, and the container that has it.
func fractionHold(pod *v1.Pod) (h hold, container string) {
	fraction, err := strconv.ParseFloat(pod.Annotations[annotationFraction], 64)
	memory := parseNumber(pod.Annotations[annotationFractionMemory])
	h = hold{resource: annotationFraction, devices: max(1, parseNumber(pod.Annotations[annotationFractionDevices])), nvidia: true}
	switch {
	case err == nil && fraction > 0 && fraction <= 1:
		h.percent = int64(math.Ceil(100*fraction - 1e-6))
		h.cores = h.percent
	case memory > 0:
		h.memory = memory
	default:
		return hold{}, ""
	}
	container = pod.Annotations[annotationFractionContainer]
	if !slices.ContainsFunc(pod.Spec.Containers, func(c v1.Container) bool { return c.Name == container }) && len(pod.Spec.Containers) > 0 {
		container = pod.Spec.Containers[0].Name
	}
	return h, container
}

// reserves reports whether a pod only stands for a GPU that KAI or Run:ai gives to pods with a fraction.
func reserves(pod *v1.Pod) bool {
	if pod.Annotations[annotationFraction] != "" || pod.Annotations[annotationFractionMemory] != "" {
		return false
	}
	switch pod.Namespace {
	case "kai-resource-reservation", "runai-reservation":
		return true
	}
	app := pod.Labels["app"]
	return pod.Labels[labelGroup] != "" && (app == "kai-resource-reservation" || app == "runai-reservation")
}

// holdsOf returns what each container of a pod holds, by the container's name. Devices of claims count for the first container with a
// claim.
func holdsOf(pod *v1.Pod, claimed []driverDevice) map[string]hold {
	out := map[string]hold{}
	for c := range containersOf(pod) {
		if h := holdOf(c.Resources.Limits); h.devices > 0 {
			out[c.Name] = h
		}
	}
	if len(out) == 0 {
		if h, container := fractionHold(pod); h.devices > 0 {
			out[container] = h
		}
	}
	if len(claimed) > 0 && len(out) == 0 {
		out[claimant(pod)] = hold{resource: fromClaims, devices: int64(len(claimed)), nvidia: true, profile: claimed[0].profile}
	}
	return out
}

// claimant returns the name of the first container that uses a claim, or of the first container if none does; empty if there is no container.
func claimant(pod *v1.Pod) (first string) {
	for c := range containersOf(pod) {
		if len(c.Resources.Claims) > 0 {
			return c.Name
		}
		first = cmp.Or(first, c.Name)
	}
	return first
}

// containersOf yields the main containers of a pod and its init containers.
func containersOf(pod *v1.Pod) iter.Seq[*v1.Container] {
	return func(yield func(*v1.Container) bool) {
		for i := range pod.Spec.Containers {
			if !yield(&pod.Spec.Containers[i]) {
				return
			}
		}
		for i := range pod.Spec.InitContainers {
			if !yield(&pod.Spec.InitContainers[i]) {
				return
			}
		}
	}
}

// sidecar reports whether an init container runs as long as its pod.
func sidecar(c *v1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == v1.ContainerRestartPolicyAlways
}

// profileOf returns the MIG profile of a hold's devices, or an empty string if they are not MIG instances.
func (g *gpuNode) profileOf(h hold) string {
	if h.profile == "" && h.resource != fromClaims && !h.sized() {
		return g.profile
	}
	return h.profile
}

// sizeOf returns the memory (MiB) and the cores (percent) that a hold states of each GPU. One that states memory alone
// shares the cores with the others on the GPU, and counts with as large a part of them as of the memory.
func (g *gpuNode) sizeOf(h hold) (memory, cores int64) {
	memory, cores = h.memory, h.cores
	if h.percent > 0 {
		memory = g.memory * min(h.percent, 100) / 100
	}
	if cores == 0 && memory > 0 {
		cores = max(1, min(100, 100*memory/g.memory))
	}
	return memory, cores
}

// fraction returns the fraction of a physical GPU that each device of a hold is.
func (g *gpuNode) fraction(h hold) packing.MilliGPU {
	if profile := g.profileOf(h); profile != "" {
		return max(1, migFraction(profile)/packing.MilliGPU(g.replicas))
	}
	if h.sized() {
		memory, _ := g.sizeOf(h)
		return min(packing.WholeGPU, max(1, packing.MilliGPU(h.cores)*10, packing.MilliGPU(memory)*packing.WholeGPU/packing.MilliGPU(g.memory)))
	}
	if h.shared(g) {
		return max(1, packing.WholeGPU/packing.MilliGPU(g.replicas))
	}
	return packing.WholeGPU
}

// heldByHolds returns how much of a node's GPUs the holds are. Of each resource, Kubernetes gives a pod as much as its main containers and
// sidecars have together, or as much as an init container has with the sidecars before it, whichever is more.
func (g *gpuNode) heldByHolds(pod *v1.Pod, holds map[string]hold) (sum packing.MilliGPU) {
	most, running := map[string]packing.MilliGPU{}, map[string]packing.MilliGPU{}
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		h := holds[c.Name]
		held := packing.MilliGPU(h.devices) * g.fraction(h)
		if sidecar(c) {
			running[h.resource] += held
			held = 0
		}
		most[h.resource] = max(most[h.resource], running[h.resource]+held)
	}
	for i := range pod.Spec.Containers {
		h := holds[pod.Spec.Containers[i].Name]
		running[h.resource] += packing.MilliGPU(h.devices) * g.fraction(h)
	}
	for resource, held := range running {
		most[resource] = max(most[resource], held)
	}
	for _, held := range most {
		sum += held
	}
	return sum
}

// namedDevices returns the physical GPUs that a pod is known to use, each as often as it uses it, or none: by gshare's placement, by the
// scheduler of another plugin, or by its claims.
func (g *gpuNode) namedDevices(pod *v1.Pod, claimed []driverDevice) (devices []string) {
	if kube.RequestsShare(pod) {
		return g.placedDevices(pod)
	}
	if len(claimed) > 0 {
		for _, d := range claimed {
			devices = append(devices, d.id)
		}
		return devices
	}
	return g.listedDevicesOf(pod)
}

// placedDevices returns, for each vGPU in a pod's placement, the GPU that it is on.
func (g *gpuNode) placedDevices(pod *v1.Pod) (devices []string) {
	placement, _, err := kube.PlacementOf(pod)
	if err != nil {
		return nil
	}
	for _, c := range placement.Containers {
		for _, v := range c.VGPUs {
			if device, ok := g.devices[v.Slice]; ok {
				devices = append(devices, device)
			}
		}
	}
	return devices
}
