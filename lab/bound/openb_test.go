package bound

import (
	"slices"
	"testing"

	"github.com/gshare-dev/gshare/lab/cluster"
	"github.com/gshare-dev/gshare/lab/dataset"
	"github.com/gshare-dev/gshare/lab/trace"
	"github.com/gshare-dev/gshare/vgpu/packing"
	"github.com/gshare-dev/gshare/vgpu/share"
)

func openb(t testing.TB, list string, load float64) *Problem {
	t.Helper()
	machines, err := trace.ReadNodes(dataset.Prefix + "openb/openb_node_list_gpu_node.csv")
	if err != nil {
		t.Fatal(err)
	}
	var nodes []cluster.Node
	for _, n := range machines {
		nodes = append(nodes, cluster.Node{Name: n.Name, CPU: packing.MilliCPU(n.MilliCPU), RAM: share.Bytes(n.MemoryMiB) * share.MiB, GPUs: n.GPUs, Model: n.Model})
	}
	arrivals, err := trace.ReadPods(dataset.Prefix + "openb/openb_pod_list_" + list + ".csv")
	if err != nil {
		t.Fatal(err)
	}
	var pods []cluster.Pod
	for _, p := range arrivals {
		slices.Sort(p.Models)
		pods = append(pods, cluster.Pod{CPU: packing.MilliCPU(p.MilliCPU), RAM: share.Bytes(p.MemoryMiB) * share.MiB,
			GPUs: p.GPUs, Milli: packing.MilliGPU(p.MilliGPU), Models: slices.Compact(p.Models)})
	}
	pods, err = cluster.Arrivals(cluster.Config{Nodes: nodes, Pods: pods, Policy: "gshare", Order: cluster.RandomOrder, Load: load, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	return NewProblem(nodes, pods)
}
