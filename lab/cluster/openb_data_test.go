package cluster

import (
	"slices"
	"testing"

	"github.com/gshare-dev/gshare/lab/dataset"
	"github.com/gshare-dev/gshare/lab/trace"
	"github.com/gshare-dev/gshare/vgpu/packing"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// openb returns the nodes of the openb trace and the pods of one of its lists, k times over.
func openb(t testing.TB, list string, k int) (nodes []Node, pods []Pod) {
	t.Helper()
	machines, err := trace.ReadNodes(dataset.Prefix + "openb/openb_node_list_gpu_node.csv")
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range machines {
		nodes = append(nodes, Node{Name: n.Name, CPU: packing.MilliCPU(n.MilliCPU), RAM: share.Bytes(n.MemoryMiB) * share.MiB, GPUs: n.GPUs, Model: n.Model})
	}
	arrivals, err := trace.ReadPods(dataset.Prefix + "openb/openb_pod_list_" + list + ".csv")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range arrivals {
		slices.Sort(p.Models)
		pods = append(pods, Pod{CPU: packing.MilliCPU(p.MilliCPU), RAM: share.Bytes(p.MemoryMiB) * share.MiB,
			GPUs: p.GPUs, Milli: packing.MilliGPU(p.MilliGPU), Models: p.Models})
	}
	return slices.Repeat(nodes, k), slices.Repeat(pods, k)
}
