package live

import (
	"maps"
	"testing"
)

func with(labels map[string]string, pairs ...string) map[string]string {
	out := maps.Clone(labels)
	for i := 0; i < len(pairs); i += 2 {
		out[pairs[i]] = pairs[i+1]
	}
	return out
}

func TestNodes(t *testing.T) {
	for name, c := range map[string]struct {
		labels map[string]string
		has    []string
		gpus   int // none: the node is left out
		model  string
		memory int64
		pool   string
	}{
		"no GPU":                     {nil, nil, 0, "", 0, ""},
		"whole GPUs":                 {a100, []string{"nvidia.com/gpu", "4"}, 4, product, 81920, ""},
		"without feature discovery":  {nil, []string{"nvidia.com/gpu", "8"}, 8, "", 40960, ""},
		"labels that say nothing":    {map[string]string{labelCount: "many", labelMemory: "-1", labelReplicas: "x"}, []string{"nvidia.com/gpu", "2"}, 2, "", 40960, ""},
		"in a pool":                  {with(a100, "cloud.google.com/gke-nodepool", "train"), []string{"nvidia.com/gpu", "4"}, 4, product, 81920, "train"},
		"time-sliced":                {with(a100, labelProduct, product+"-SHARED", labelReplicas, "10"), []string{"nvidia.com/gpu", "40"}, 4, product, 81920, ""},
		"time-sliced, without count": {map[string]string{labelReplicas: "10"}, []string{"nvidia.com/gpu.shared", "20"}, 2, "", 40960, ""},
		"MIG, mixed":                 {a100, []string{"nvidia.com/gpu", "2", "nvidia.com/mig-3g.40gb", "4"}, 4, product, 81920, ""},
		"MIG, mixed, without count":  {nil, []string{"nvidia.com/gpu", "2", "nvidia.com/mig-3g.40gb", "4"}, 4, "", 40960, ""},
		"MIG, single": {
			map[string]string{labelProduct: product + "-MIG-1g.10gb", labelCount: "14", labelMemory: "9728"},
			[]string{"nvidia.com/gpu", "14"}, 2, product, 40960, "",
		},
		"another maker": {nil, []string{"amd.com/gpu", "8"}, 8, "amd.com/gpu", 40960, ""},
		"Volcano":       {with(a100, labelCount, "2"), []string{"volcano.sh/vgpu-number", "20"}, 2, product, 81920, ""},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGPUNode(node(t, "n", c.labels, c.has...), Options{GPUMemory: 40960}, nil)
			if g == nil || c.gpus == 0 {
				if (g == nil) != (c.gpus == 0) {
					t.Errorf("got %+v", g)
				}
				return
			}
			if len(g.Slices) != c.gpus || g.Model != c.model || g.memory != c.memory || g.Pool != c.pool {
				t.Errorf("%s: %d GPUs %q of %d MiB in pool %q, want %d %q of %d MiB in %q",
					name, len(g.Slices), g.Model, g.memory, g.Pool, c.gpus, c.model, c.memory, c.pool)
			}
		})
	}
}

func TestInventoryIsTaken(t *testing.T) {
	g := newGPUNode(gshareNode(t, "n"), Options{GPUMemory: 40960}, nil)
	if g == nil || len(g.Slices) != 2 || g.Model != "A100" || g.Slices[0].Memory>>20 != 81920 || len(g.Slices[0].Classes) != 3 {
		t.Fatalf("got %+v", g)
	}
}
