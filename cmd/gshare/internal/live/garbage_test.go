package live

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/gshare-dev/gshare/vgpu/whatif"
)

// TestGarbage: whatever labels, annotations and resources say, the cluster is read, and no more is held than there is.
func TestGarbage(t *testing.T) {
	random := rand.New(rand.NewPCG(4, 4))
	values := []string{"", "0", "-1", "1", "4", "1e9", "99999999", "NaN", "0.5", "[]", "{}", "null", ":;,", "a,1,2,b", `[{"id":"a","devmem":-5}]`,
		`[{"id":"a","devmem":9999999999}]`, "GPU-0,10,0,x,true:", `{"gpu":[{"minor":7}]}`, "2g.20gb", "A100-MIG-3g.40gb", "A100-SHARED"}
	numbers := []string{"0", "1", "3", "100", "250", "99999999999"}
	pick := func(list []string) string { return list[random.IntN(len(list))] }
	names := []string{
		"nvidia.com/gpu", "nvidia.com/gpu.shared", "nvidia.com/gpumem", "nvidia.com/gpucores", "nvidia.com/gpumem-percentage",
		"nvidia.com/mig-3g.40gb", "nvidia.com/mig-x", "volcano.sh/vgpu-number", "volcano.sh/vgpu-memory", "koordinator.sh/gpu",
		"koordinator.sh/gpu-core", "koordinator.sh/gpu-memory", "koordinator.sh/gpu.shared", "amd.com/gpu",
	}
	labelled := []string{
		labelProduct, labelCount, labelMemory, labelReplicas, labelClients, labelPartition, labelAcceleratorCount, labelKoordinatorModel,
	}
	noted := []string{
		hamiPod, volcanoPod, koordinatorPod, annotationFraction, annotationFractionMemory, annotationFractionDevices, annotationFractionContainer,
	}
	readable := 0
	for range 300 {
		labels, notes := map[string]string{}, map[string]string{}
		for _, key := range labelled {
			if random.IntN(3) == 0 {
				labels[key] = pick(values)
			}
		}
		for _, key := range []string{hamiNode, volcanoNode} {
			if random.IntN(3) == 0 {
				notes[key] = pick(values)
			}
		}
		n := node(t, "n", labels, pick(names), pick([]string{"0", "1", "8", "40"}), pick(names), "4")
		n.Annotations = notes
		objects := []runtime.Object{n}
		for i := range random.IntN(5) {
			p := pod(t, fmt.Sprint("p", i), "n", pick(names), pick(numbers), pick(names), pick(numbers))
			p.Annotations = map[string]string{}
			for _, key := range noted {
				if random.IntN(3) == 0 {
					p.Annotations[key] = pick(values)
				}
			}
			if random.IntN(3) == 0 {
				p.Namespace = "kai-resource-reservation"
			}
			if random.IntN(3) == 0 {
				withInit(t, p, random.IntN(2) == 0, pick(names), pick(numbers))
			}
			if random.IntN(4) == 0 {
				p.Spec.Containers[0].Resources.Limits = nil
			}
			objects = append(objects, p)
		}
		c, err := read(t, Options{}, objects...)
		if err != nil {
			continue // no GPUs
		}
		readable++
		for _, row := range whatif.Compare(c.Nodes, c.Pods) {
			if row.HeldGPUs > row.GPUs || row.HeldGPUs < 0 || row.NeededGPUs < 0 {
				t.Errorf("%+v", row)
			}
		}
	}
	if readable < 150 {
		t.Errorf("only %d of 300 clusters have GPUs", readable)
	}
}
