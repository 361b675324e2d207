package live

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/kube/nodeview"
	"github.com/gshare-dev/gshare/vgpu/packing"
	"github.com/gshare-dev/gshare/vgpu/share"
	"github.com/gshare-dev/gshare/vgpu/whatif"
)

// gpuNode is a node with GPUs, with how its device plugin divides them: as whole GPUs, MIG instances or time-sliced replicas.
type gpuNode struct {
	whatif.Node
	memory   int64  // MiB of one GPU
	guessed  bool   // memory is assumed
	replicas int64  // time slices of each GPU
	profile  string // MIG profile of all GPUs, if the plugin advertises instances as GPUs
	listed   bool   // its plugin lists its GPUs, and counts slots of them as resources
	unclear  string // why it is not known how its GPUs are shared, or empty

	inUse     map[string]int64  // pods on a GPU, by UUID, where pods or their claims name the GPU
	devices   map[string]string // UUID of the GPU by ID of gshare's slice, or by the name that its plugin or driver gives it
	reserved  packing.MilliGPU  // of GPUs that reservation pods hold for pods with a fraction
	fractions int64             // GPUs that pods with a fraction use, each counted for each pod
}

// newGPUNode converts a node, or returns nil if it has no GPUs. drivers are its devices of NVIDIA's DRA driver.
func newGPUNode(n *v1.Node, o Options, drivers []driverDevice) *gpuNode {
	g := &gpuNode{inUse: map[string]int64{}, devices: map[string]string{}, replicas: replicasOf(n)}
	g.Name, g.Pool = n.Name, poolOf(n)
	g.CPU = packing.MilliCPU(n.Status.Allocatable.Cpu().MilliValue())
	g.RAM = share.Bytes(n.Status.Allocatable.Memory().Value())
	if inv, present, err := kube.InventoryOf(n); present && err == nil && len(inv.Slices) > 0 {
		g.readInventory(inv)
		return g
	}
	product, profile, _ := strings.Cut(n.Labels[labelProduct], "-MIG-")
	g.Model, g.profile = strings.TrimSuffix(product, "-SHARED"), strings.TrimSuffix(profile, "-SHARED")
	if g.profile == "" {
		g.profile = n.Labels[labelPartition]
	}
	list := registered(n)
	for _, d := range list {
		g.devices[d.id] = d.id
	}
	for _, d := range drivers {
		g.devices[d.id] = d.id
	}
	if len(list) > 0 {
		g.listed, g.replicas = true, 1
		g.Model = cmp.Or(g.Model, list[0].model)
	}
	if len(drivers) > 0 {
		g.Model = cmp.Or(g.Model, drivers[0].model)
	}
	g.Model = cmp.Or(g.Model, n.Labels[labelAccelerator], n.Labels[labelKoordinatorModel])
	gpus := g.gpus(n)
	if gpus == 0 {
		return nil
	}
	g.readMemory(n, o.GPUMemory, list, drivers)
	if !o.WholeGPUs {
		g.unclear = cmp.Or(g.unclear, g.unnamed(n))
	}
	g.Slices = g.wholeGPUs(gpus)
	return g
}

// replicasOf returns into how many time slices or clients of MPS the labels of a node say that each of its GPUs is divided.
func replicasOf(n *v1.Node) int64 {
	return max(1, parseNumber(n.Labels[labelReplicas]), parseNumber(n.Labels[labelClients]))
}

// unnamed returns why it is not known whether the GPUs that the node advertises are whole, or an empty string: without labels, NVIDIA's
// plugin advertises time slices like whole GPUs.
func (g *gpuNode) unnamed(n *v1.Node) string {
	has := n.Status.Capacity
	for _, label := range []string{labelProduct, labelCount, labelReplicas, labelAccelerator, labelAcceleratorCount} {
		if n.Labels[label] != "" {
			return ""
		}
	}
	number := quantityOf(has, nvidiaGPU) + quantityOf(has, nvidiaShared) + quantityOf(has, sizeResources[1].count)
	if number < 2 || len(g.devices) > 0 {
		return ""
	}
	return fmt.Sprintf("no label says whether its %d GPUs are whole or slices (--whole-gpus: they are whole)", number)
}

// readInventory reads the slices from the inventory annotation of a node that runs gshare.
func (g *gpuNode) readInventory(inv kube.Inventory) {
	g.Model, g.memory = inv.Slices[0].Model, inv.Slices[0].MemoryMiB
	for _, s := range inv.Slices {
		g.devices[s.ID] = s.Device
	}
	g.Slices = nodeview.Slices(inv)
}

// gpus returns the number of physical GPUs of the node. If what the labels say is not what the resources say, the node is unclear.
func (g *gpuNode) gpus(n *v1.Node) int64 {
	has := n.Status.Capacity
	for _, name := range otherVendors {
		if c := quantityOf(has, name); c > 0 {
			g.Model = string(name)
			return c
		}
	}
	labelled := max(parseNumber(n.Labels[labelCount]), parseNumber(n.Labels[labelAcceleratorCount]))
	if g.profile != "" && labelled > 0 && n.Labels[labelAcceleratorCount] == "" {
		labelled = 0 // GFD counts instances
	}
	distinct := map[string]bool{}
	for _, device := range g.devices {
		distinct[device] = true
	}
	advertised := g.gpusOfNVIDIA(has)
	if koordinator := max(quantityOf(has, koordinatorGPU), quantityOf(has, koordinatorCore)) / 100; koordinator > 0 {
		g.listed = true // even where NVIDIA's resource is advertised as well
		return max(labelled, koordinator)
	}
	switch named := max(labelled, int64(len(distinct))); {
	case named == 0:
		return advertised
	case g.listed || len(distinct) > 0 || quantityOf(has, sizeResources[1].count) > 0:
		return named
	case advertised > named:
		g.unclear = fmt.Sprintf("its resources amount to %d GPUs, its labels to %d", advertised, named)
		return named
	case !advertises(has):
		g.unclear = fmt.Sprintf("no known resource hands out the %d GPUs of its labels", named)
		return named
	default:
		return named
	}
}

// advertises reports whether a resource for GPUs of NVIDIA is known on the node, even if none is left.
func advertises(has v1.ResourceList) bool {
	for name := range has {
		if name == nvidiaGPU || name == nvidiaShared || strings.HasPrefix(string(name), nvidiaMIG) {
			return true
		}
	}
	return false
}

// gpusOfNVIDIA returns the number of physical GPUs that the resources of NVIDIA's device plugin amount to.
func (g *gpuNode) gpusOfNVIDIA(has v1.ResourceList) int64 {
	var parts packing.MilliGPU // GPUs that MIG instances add up to
	whole := quantityOf(has, nvidiaGPU) + quantityOf(has, nvidiaShared) + quantityOf(has, sizeResources[1].count)
	if g.profile != "" {
		parts, whole = packing.MilliGPU(whole)*migFraction(g.profile)/packing.MilliGPU(g.replicas), 0
	}
	for name, q := range has {
		if profile, ok := strings.CutPrefix(string(name), nvidiaMIG); ok {
			parts += packing.MilliGPU(q.Value()) * migFraction(profile)
		}
	}
	return ceil(whole, g.replicas) + ceil(int64(parts), int64(packing.WholeGPU))
}

// migFraction returns the fraction of a GPU's compute slices that a MIG instance has, or 1 if the profile is unknown.
func migFraction(profile string) packing.MilliGPU {
	p, compute := profileNamed(profile)
	if p == nil {
		return packing.WholeGPU
	}
	return packing.WholeGPU * packing.MilliGPU(p.Compute) / packing.MilliGPU(compute)
}

// readMemory reads the memory of a GPU from the node's label, from the plugin's list or from what the driver says of its devices. It
// ignores the label if all GPUs are MIG instances, because the label then states the memory of an instance.
func (g *gpuNode) readMemory(n *v1.Node, otherwise int64, list []listedDevice, drivers []driverDevice) {
	g.memory = parseNumber(n.Labels[labelMemory])
	if g.profile != "" {
		g.memory = 0
	}
	for _, d := range list { // of plugins that promise more memory than there is, the list is larger
		if g.memory == 0 || d.memory > 0 && d.memory < g.memory {
			g.memory = d.memory
		}
	}
	for _, d := range drivers {
		if d.profile == "" && g.memory == 0 {
			g.memory = d.memory
		}
	}
	if g.memory == 0 {
		g.memory, g.guessed = otherwise, !slices.Contains(otherVendors, v1.ResourceName(g.Model)) // irrelevant for whole GPUs
	}
}

// wholeGPUs returns n slices, each a whole GPU, with the node's model and memory. Weights that pods declare count once on each, as with
// gshare's model store.
func (g *gpuNode) wholeGPUs(n int64) (out []packing.Slice) {
	for i := range n {
		id := fmt.Sprintf("%s/%d", g.Name, i)
		out = append(out, packing.Slice{
			ID: packing.SliceID(id), Device: id, Model: g.Model, Memory: share.Bytes(g.memory) * share.MiB, Healthy: true,
			Classes: []share.Isolation{share.Exclusive, share.MPS, share.Elastic},
			Reserve: kube.DefaultReserve, MaxShares: kube.DefaultMaxShares, Store: true,
		})
	}
	return out
}

// maxLabel is the largest number accepted in labels, flags and files, for the MiB of a GPU or the GPUs of a node.
const maxLabel = 1 << 24

// parseNumber parses the value of a label. It returns 0 if the value is not a number from 0 to maxLabel.
func parseNumber(label string) int64 {
	n, err := strconv.ParseInt(label, 10, 64)
	if err != nil || n < 0 || n > maxLabel {
		return 0
	}
	return n
}

func ceil(a, b int64) int64 { return (a + b - 1) / b }

// Annotations of nodes and pods by plugins that place pods on GPUs themselves.
const (
	hamiNode, hamiPod           = "hami.io/node-nvidia-register", "hami.io/vgpu-devices-allocated"
	volcanoNode, volcanoPod     = "volcano.sh/node-vgpu-register", "volcano.sh/vgpu-ids-new"
	koordinatorPod              = "scheduling.koordinator.sh/device-allocated"
	annotationFraction          = "gpu-fraction" // of KAI and Run:ai
	annotationFractionMemory    = "gpu-memory"   // MiB
	annotationFractionDevices   = "gpu-fraction-num-devices"
	annotationFractionContainer = "gpu-fraction-container-name"
	labelGroup                  = "runai-gpu-group"
)

// listedDevice is a GPU in the list that a device plugin writes to its node.
type listedDevice struct {
	id, model string
	memory    int64 // MiB
}

// registered returns the GPUs that the plugin of HAMi or Volcano lists on the node, or none.
func registered(n *v1.Node) (list []listedDevice) {
	for _, key := range []string{hamiNode, volcanoNode} {
		text := n.Annotations[key]
		var entries []struct {
			ID     string `json:"id"`
			Memory int64  `json:"devmem"`
			Type   string `json:"type"`
		}
		if json.Unmarshal([]byte(text), &entries) == nil {
			for _, e := range entries {
				list = append(list, listedDevice{e.ID, modelOf(e.Type), max(0, min(e.Memory, maxLabel))})
			}
			continue
		}
		// As in HAMi before JSON: ID, slots, memory, and further fields, of which one is the model.
		for entry := range strings.SplitSeq(text, ":") {
			if fields := strings.Split(entry, ","); len(fields) > 3 {
				list = append(list, listedDevice{fields[0], modelOf(firstName(fields[3:])), parseNumber(fields[2])})
			}
		}
	}
	return list
}

// firstName returns the first field that is neither a number nor a truth value.
func firstName(fields []string) string {
	for _, f := range fields {
		_, number := strconv.ParseFloat(f, 64)
		_, truth := strconv.ParseBool(f)
		if number != nil && truth != nil {
			return f
		}
	}
	return ""
}

// modelOf returns a model as feature discovery writes it, from the type in a list: that repeats the vendor, and has blanks.
func modelOf(kind string) string {
	return strings.ReplaceAll(strings.Replace(kind, "NVIDIA-NVIDIA", "NVIDIA", 1), " ", "-")
}

// listedDevicesOf returns the GPUs that the scheduler of HAMi, Volcano or Koordinator wrote on the pod, each as often as a container
// uses it. It returns none if any of HAMi's or Volcano's is not in the node's list.
func (g *gpuNode) listedDevicesOf(pod *v1.Pod) (devices []string) {
	for _, key := range []string{hamiPod, volcanoPod} {
		for _, entry := range strings.FieldsFunc(pod.Annotations[key], func(r rune) bool { return r == ';' || r == ':' }) {
			id, _, _ := strings.Cut(entry, ",")
			id, _, _ = strings.Cut(id, "[") // the MIG instance
			device, ok := g.devices[id]
			if !ok {
				return nil
			}
			devices = append(devices, device)
		}
	}
	var allocated struct {
		GPU []struct{ Minor int }
	}
	if len(devices) == 0 && json.Unmarshal([]byte(pod.Annotations[koordinatorPod]), &allocated) == nil {
		for _, gpu := range allocated.GPU {
			devices = append(devices, strconv.Itoa(gpu.Minor))
		}
	}
	return devices
}
