package trace

import (
	_ "embed" // for the tables
	"fmt"
	"math/rand/v2"
)

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

// Sample returns pods drawn by their frequency in the openb trace, and a cluster of the trace's node shapes, scaled so that the pods
// request the same fraction of it as all pods of the trace request of all nodes. Pods that request a fraction of one GPU request a part of
// the time for it.
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
