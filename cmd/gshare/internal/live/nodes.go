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

// gpuNode is a node with GPUs, and how its plugin hands them out today.
type gpuNode struct {
	whatif.Node
	memory   int64  // MiB of one GPU
	guessed  bool   // the memory is
	replicas int64  // into which each GPU is time-sliced
	profile  string // of all its MIG instances, where the plugin hands them out as GPUs
	inUse    map[string]int64
	devices  map[string]string // of gshare's slices
}

// newGPUNode reads a node; nil if it has no GPUs.
func newGPUNode(n *v1.Node, memory int64) *gpuNode {
	g := &gpuNode{inUse: map[string]int64{}, devices: map[string]string{}, replicas: max(1, number(n.Labels[labelReplicas]))}
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

func (g *gpuNode) readInventory(inv kube.Inventory) {
	g.Model, g.memory = inv.Slices[0].Model, inv.Slices[0].MemoryMiB
	for _, s := range inv.Slices {
		g.devices[s.ID] = s.Device
	}
	g.Slices = nodeview.Slices(inv)
}

// gpus counts the physical GPUs.
func (g *gpuNode) gpus(n *v1.Node) int64 {
	has := n.Status.Capacity
	for _, name := range otherWhole {
		if c := count(has, name); c > 0 {
			g.Model = string(name)
			return c
		}
	}
	if c := number(n.Labels[labelCount]); c > 0 && g.profile == "" {
		return c
	}
	return g.gpusOfNVIDIA(has)
}

func (g *gpuNode) gpusOfNVIDIA(has v1.ResourceList) int64 {
	var parts packing.MilliGPU // held by MIG instances
	whole := count(has, nvidiaGPU) + count(has, nvidiaShared)
	if g.profile != "" {
		parts, whole = packing.MilliGPU(whole)*migPart(g.profile), 0
	}
	for name, q := range has {
		if profile, ok := strings.CutPrefix(string(name), nvidiaMIG); ok {
			parts += packing.MilliGPU(q.Value()) * migPart(profile)
		}
	}
	return ceil(whole, g.replicas) + ceil(int64(parts), int64(packing.WholeGPU))
}

// migPart is the part of a GPU's compute slices that an instance has; of an unknown profile, all.
func migPart(profile string) packing.MilliGPU {
	p, compute := profileNamed(profile)
	if p == nil {
		return packing.WholeGPU
	}
	return packing.WholeGPU * packing.MilliGPU(p.Compute) / packing.MilliGPU(compute)
}

// readMemory takes the memory of a GPU from its label; where GPUs are MIG instances, the label is about those.
func (g *gpuNode) readMemory(n *v1.Node, otherwise int64) {
	if g.memory = number(n.Labels[labelMemory]); g.memory == 0 || g.profile != "" {
		g.memory, g.guessed = otherwise, !slices.Contains(otherWhole, v1.ResourceName(g.Model)) // of whole GPUs it says nothing
	}
}

func (g *gpuNode) wholeGPUs(n int64) (out []packing.Slice) {
	for i := range n {
		id := fmt.Sprintf("%s/%d", g.Name, i)
		out = append(out, packing.Slice{
			ID: packing.SliceID(id), Device: id, Model: g.Model, Memory: share.Bytes(g.memory) * share.MiB, Healthy: true,
			Classes: []share.Isolation{share.Exclusive, share.MPS, share.Elastic},
			Reserve: kube.DefaultReserve, MaxShares: kube.DefaultMaxShares,
		})
	}
	return out
}

// maxLabel bounds the numbers that labels, flags and files may give: MiB of a GPU, or GPUs of a node.
const maxLabel = 1 << 24

// number reads a label; zero if it says nothing sensible.
func number(label string) int64 {
	n, err := strconv.ParseInt(label, 10, 64)
	if err != nil || n < 0 || n > maxLabel {
		return 0
	}
	return n
}

func ceil(a, b int64) int64 { return (a + b - 1) / b }
