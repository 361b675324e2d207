// Package trace reads cluster traces in the CSV form of the openb production trace, and converts their nodes and pods to Kubernetes objects
// that request gshare resources.
package trace

import (
	_ "embed" // for the tables
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
)

// Node is one machine of a cluster trace.
type Node struct {
	Name      string
	MilliCPU  int64
	MemoryMiB int64
	GPUs      int
	Model     string // of its GPUs
	Device    Device // of its GPUs; zero for that of a known model
}

func (n Node) device() Device {
	if n.Device != (Device{}) {
		return n.Device
	}
	return devices[n.Model]
}

// Pod is one pod of a cluster trace, with the CPU, memory and GPUs that it requests.
type Pod struct {
	Name      string
	MilliCPU  int64
	MemoryMiB int64
	GPUs      int      // more than one means whole devices
	MilliGPU  int64    // of each device; 1000 is all of it
	Models    []string // acceptable device models; empty accepts every model
	Timed     int      // n > 0: the pod requests the n-th smallest SM share of the grid that suffices, for a part of the time
}

// TotalMilli returns the GPUs that the pod requests, in thousandths of a device.
func (p Pod) TotalMilli() int64 { return int64(p.GPUs) * p.MilliGPU }

// gridSM lists the SM shares, in percent, that FaST-GShare profiles.
var gridSM = []int64{6, 12, 24, 50, 60, 80, 100}

// share returns the percentages of SMs and of time that the pod requests of each device. The trace has only fractions of a GPU; a timed pod
// gets an SM share of FaST-GShare's grid, and the quota that gives the same GPU time.
func (p Pod) share() (sm, quota int64) {
	if p.Timed == 0 || p.GPUs > 1 {
		return (p.MilliGPU + 9) / 10, 100
	}
	nth := 0
	for _, sm = range gridSM {
		if 10*sm >= p.MilliGPU {
			nth++
		}
		if nth == p.Timed {
			break
		}
	}
	return sm, min(100, (10*p.MilliGPU+sm-1)/sm)
}

// Device holds the memory and the number of SMs of a GPU model.
type Device struct {
	MemoryMiB int64
	SMs       int
}

// devices holds the memory and SMs of the GPU models, by their names in the trace. G2 and G3 hide the product; their memory is that of the
// classes that the trace's authors describe, and the SM counts are those of A10 and A100.
var devices = map[string]Device{
	"T4":      {16 << 10, 40},
	"P100":    {16 << 10, 56},
	"V100M16": {16 << 10, 80},
	"V100M32": {32 << 10, 80},
	"A10":     {24 << 10, 72},
	"G2":      {24 << 10, 72},
	"G3":      {80 << 10, 108},
}

// KnownModels returns the sorted names of the GPU models whose memory and SMs are known.
func KnownModels() []string { return slices.Sorted(maps.Keys(devices)) }

// NodesHelp describes the files that ReadNodes reads.
func NodesHelp() string {
	return "CSV file of nodes: sn, cpu_milli, memory_mib, gpu, model, and for GPU models other than " + strings.Join(KnownModels(), ", ") +
		" also gpu_memory_mib and gpu_sms"
}

// The shapes of the nodes and pods of the openb production trace (alibaba/clusterdata, cluster-trace-gpu-v2023: its GPU
// nodes, and the pods of its default list) and how often each occurs there.
var (
	//go:embed nodes.csv
	nodeShapes string
	//go:embed pods.csv
	podShapes string
)

// counted is the shape of a node or pod and how often it occurs in the trace.
type counted[T any] struct {
	count int
	value T
}

func countedShapes[T any](table string, column string, parse func(*row) T) ([]counted[T], error) {
	return read(table, []string{"count", column}, func(r *row) counted[T] {
		return counted[T]{int(r.count("count")), parse(r)}
	})
}

// Sample returns pods drawn by their frequency in the openb trace, and a cluster of the trace's node shapes. The cluster is scaled such
// that the pods request the same fraction of it as all pods of the trace request of all its nodes. Pods that request a fraction of one GPU
// request a part of the time for it.
func Sample(pods int, seed uint64) ([]Node, []Pod, error) {
	nodes, err := countedShapes(nodeShapes, "model", nodeOf)
	if err != nil {
		return nil, nil, fmt.Errorf("node shapes: %w", err)
	}
	shapes, err := countedShapes(podShapes, "gpu_spec", podOf)
	if err != nil {
		return nil, nil, fmt.Errorf("pod shapes: %w", err)
	}
	total := 0
	for _, s := range shapes {
		total += s.count
	}
	return sampleNodes(nodes, pods, total), samplePods(shapes, pods, total, rand.New(rand.NewPCG(seed, 1))), nil
}

func sampleNodes(shapes []counted[Node], pods, total int) []Node {
	var out []Node
	for _, s := range shapes {
		for range (s.count*pods + total - 1) / total {
			s.value.Name = fmt.Sprintf("node-%04d", len(out))
			out = append(out, s.value)
		}
	}
	return out
}

func samplePods(shapes []counted[Pod], pods, total int, r *rand.Rand) []Pod {
	out := make([]Pod, pods)
	for i := range out {
		at := r.IntN(total)
		for _, s := range shapes {
			if at -= s.count; at < 0 {
				out[i] = s.value
				break
			}
		}
		out[i].Name = fmt.Sprintf("pod-%04d", i)
		if out[i].GPUs == 1 && out[i].MilliGPU < 1000 {
			out[i].Timed = 1 + r.IntN(2)
		}
	}
	return out
}
