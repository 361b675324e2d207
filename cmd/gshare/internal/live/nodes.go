package live

import (
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
	inUse    map[string]int64
	devices  map[string]string // UUID of the GPU by ID of gshare's slice
}

// newGPUNode converts a node, or returns nil if it has no GPUs. memory is the assumed size in MiB of GPUs for which no label states it.
func newGPUNode(n *v1.Node, memory int64) *gpuNode {
	g := &gpuNode{inUse: map[string]int64{}, devices: map[string]string{}, replicas: max(1, parseNumber(n.Labels[labelReplicas]))}
	g.Name, g.Pool = n.Name, poolOf(n)
	g.CPU = packing.MilliCPU(n.Status.Allocatable.Cpu().MilliValue())
	g.RAM = share.Bytes(n.Status.Allocatable.Memory().Value())
	if inv, present, err := kube.InventoryOf(n); present && err == nil && len(inv.Slices) > 0 {
		g.readInventory(inv)
		return g
	}
	product, profile, _ := strings.Cut(n.Labels[labelProduct], "-MIG-")
	g.Model, g.profile = strings.TrimSuffix(product, "-SHARED"), strings.TrimSuffix(profile, "-SHARED")
	gpus := g.gpus(n)
	if gpus == 0 {
		return nil
	}
	g.readMemory(n, memory)
	g.Slices = g.wholeGPUs(gpus)
	return g
}

// readInventory reads the slices from the inventory annotation of a node that runs gshare.
func (g *gpuNode) readInventory(inv kube.Inventory) {
	g.Model, g.memory = inv.Slices[0].Model, inv.Slices[0].MemoryMiB
	for _, s := range inv.Slices {
		g.devices[s.ID] = s.Device
	}
	g.Slices = nodeview.Slices(inv)
}

// gpus returns the number of physical GPUs of the node.
func (g *gpuNode) gpus(n *v1.Node) int64 {
	has := n.Status.Capacity
	for _, name := range otherVendors {
		if c := quantityOf(has, name); c > 0 {
			g.Model = string(name)
			return c
		}
	}
	if c := parseNumber(n.Labels[labelCount]); c > 0 && g.profile == "" {
		return c
	}
	return g.gpusOfNVIDIA(has)
}

// gpusOfNVIDIA returns the number of physical GPUs that the resources of NVIDIA's device plugin amount to.
func (g *gpuNode) gpusOfNVIDIA(has v1.ResourceList) int64 {
	var parts packing.MilliGPU // GPUs that MIG instances add up to
	whole := quantityOf(has, nvidiaGPU) + quantityOf(has, nvidiaShared)
	if g.profile != "" {
		parts, whole = packing.MilliGPU(whole)*migFraction(g.profile), 0
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

// readMemory reads the memory of a GPU from the node's label. It ignores the label if all GPUs are MIG instances, because the label then
// states the memory of an instance.
func (g *gpuNode) readMemory(n *v1.Node, otherwise int64) {
	if g.memory = parseNumber(n.Labels[labelMemory]); g.memory == 0 || g.profile != "" {
		g.memory, g.guessed = otherwise, !slices.Contains(otherVendors, v1.ResourceName(g.Model)) // irrelevant for whole GPUs
	}
}

// wholeGPUs returns n slices, each a whole GPU, with the node's model and memory. Weights that pods declare count once on each, as with gshare's
// model store.
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
