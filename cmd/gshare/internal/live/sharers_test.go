package live

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/gshare-dev/gshare/vgpu/whatif"
)

// many returns as many pods on node n.
func many(n int, make func(name string) *v1.Pod) (out []runtime.Object) {
	for i := range n {
		out = append(out, make(fmt.Sprintf("p%d", i)))
	}
	return out
}

func annotated[T metav1.Object](o T, pairs ...string) T {
	o.SetAnnotations(with(map[string]string{}, pairs...))
	return o
}

func in[T metav1.Object](namespace string, o T) T {
	o.SetNamespace(namespace)
	return o
}

// hamiList is the list of GPUs that HAMi's plugin writes to its node, each with its default of 10 slots.
func hamiList(gpus int, memory int, kind string) string {
	var entries []string
	for i := range gpus {
		entries = append(entries, fmt.Sprintf(`{"id":"GPU-%d","count":10,"devmem":%d,"devcore":100,"type":%q,"mode":"hami-core","health":true}`, i, memory, kind))
	}
	return "[" + strings.Join(entries, ",") + "]"
}

func withInit(t *testing.T, p *v1.Pod, sidecar bool, limits ...string) *v1.Pod {
	c := v1.Container{Name: fmt.Sprint("init", len(p.Spec.InitContainers)), Resources: v1.ResourceRequirements{Limits: resources(t, limits...)}}
	if sidecar {
		always := v1.ContainerRestartPolicyAlways
		c.RestartPolicy = &always
	}
	p.Spec.InitContainers = append(p.Spec.InitContainers, c)
	return p
}

// driverSlice is what NVIDIA's DRA driver publishes of a node with GPUs, of which the last is divided into instances.
func driverSlice(node string, gpus int) *resourcev1.ResourceSlice {
	text := func(s string) resourcev1.DeviceAttribute { return resourcev1.DeviceAttribute{StringValue: &s} }
	s := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: node}, Spec: resourcev1.ResourceSliceSpec{
		Driver: nvidiaDriver, NodeName: &node, Pool: resourcev1.ResourcePool{Name: node},
	}}
	for i := range gpus {
		s.Spec.Devices = append(s.Spec.Devices, resourcev1.Device{
			Name:       fmt.Sprint("gpu-", i),
			Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{"type": text("gpu"), "productName": text("NVIDIA A100-SXM4-80GB")},
			Capacity:   map[resourcev1.QualifiedName]resourcev1.DeviceCapacity{"memory": {Value: resource.MustParse("81920Mi")}},
		})
	}
	for i := range 2 {
		s.Spec.Devices = append(s.Spec.Devices, resourcev1.Device{
			Name:       fmt.Sprintf("gpu-%d-mig-3g40gb-%d", gpus-1, i),
			Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{"type": text("mig"), "profile": text("3g.40gb")},
		})
	}
	return s
}

// claiming returns a pod with a claim, and the claim with its devices.
func claiming(t *testing.T, name, claim, driver string, admin bool, devices ...string) []runtime.Object {
	p := pod(t, name, "n")
	p.Spec.ResourceClaims = []v1.PodResourceClaim{{Name: "gpu", ResourceClaimName: &claim}}
	p.Spec.Containers[0].Resources.Claims = []v1.ResourceClaim{{Name: "gpu"}}
	if devices == nil {
		return []runtime.Object{p}
	}
	c := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ml", Name: claim}}
	c.Status.Allocation = &resourcev1.AllocationResult{}
	for _, d := range devices {
		c.Status.Allocation.Devices.Results = append(c.Status.Allocation.Devices.Results,
			resourcev1.DeviceRequestAllocationResult{Request: "gpu", Driver: driver, Pool: "n", Device: d, AdminAccess: &admin})
	}
	return []runtime.Object{p, c}
}

// TestSharers: how many GPUs there are, are held and are needed, in each way of sharing GPUs, as its documentation has pods request them, and
// what of it is not understood.
func TestSharers(t *testing.T) {
	gpu := func(name string) *v1.Pod { return pod(t, name, "n", "nvidia.com/gpu", "1") }
	fraction := func(pairs ...string) func(string) *v1.Pod {
		return func(name string) *v1.Pod { return annotated(pod(t, name, "n"), pairs...) }
	}
	reservations := func(namespace string, n int) []runtime.Object {
		return many(n, func(name string) *v1.Pod { return in(namespace, gpu("gpu-reservation-"+name)) })
	}
	hami := func(n int, pairs ...string) []runtime.Object {
		return many(n, func(name string) *v1.Pod {
			return pod(t, name, "n", append([]string{"nvidia.com/gpu", "1"}, pairs...)...)
		})
	}
	class := "nvidia"
	privileged := pod(t, "p", "n")
	privileged.Spec.RuntimeClassName = &class
	tool := pod(t, "dcgm", "n")
	tool.Spec.RuntimeClassName = &class
	yes := true
	tool.OwnerReferences = []metav1.OwnerReference{{Kind: "DaemonSet", Name: "dcgm", Controller: &yes}}
	visible := pod(t, "p", "n")
	visible.Spec.Containers[0].Env = []v1.EnvVar{{Name: "NVIDIA_VISIBLE_DEVICES", Value: "all"}}
	hamiNodeOf := func(gpus int, labels map[string]string) *v1.Node {
		return annotated(node(t, "n", labels, "nvidia.com/gpu", fmt.Sprint(10*gpus)), hamiNode, hamiList(gpus, 81559, "NVIDIA-NVIDIA A100-SXM4-80GB"))
	}
	rtx := annotated(node(t, "n", map[string]string{"gpu": "on"}, "nvidia.com/gpu", "10"), hamiNode, hamiList(1, 24576, "NVIDIA-NVIDIA GeForce RTX 3090"))
	two := pod(t, "two", "n", "nvidia.com/gpu", "1", "nvidia.com/gpumem", "1000", "nvidia.com/gpucores", "20")
	second := two.Spec.Containers[0]
	second.Name = "c"
	two.Spec.Containers = append(two.Spec.Containers, second)
	gke := map[string]string{labelAccelerator: "nvidia-tesla-a100", labelAcceleratorCount: "2", labelClients: "4"}
	koordinator := node(t, "n", map[string]string{labelKoordinatorModel: "A100"}, "koordinator.sh/gpu", "400", "koordinator.sh/gpu-core", "400", "koordinator.sh/gpu-memory-ratio", "400")
	eight := node(t, "n", with(a100, labelCount, "8"), "nvidia.com/gpu", "8")

	for name, tc := range map[string]struct {
		node               *v1.Node
		objects            []runtime.Object
		gpus, held, needed int
		unknown            string // part of what is not understood; empty: all is
	}{
		"NVIDIA, whole":              {node(t, "n", a100, "nvidia.com/gpu", "4"), many(4, gpu), 4, 4, 2, ""},
		"NVIDIA, slices":             {node(t, "n", with(a100, labelReplicas, "4"), "nvidia.com/gpu", "16"), many(8, gpu), 4, 2, 2, ""},
		"NVIDIA, slices, no labels":  {node(t, "n", nil, "nvidia.com/gpu", "10"), many(3, gpu), 10, 3, 2, "no label says whether its 10 GPUs are whole"},
		"NVIDIA, MPS":                {node(t, "n", with(a100, labelReplicas, "2", "nvidia.com/gpu.sharing-strategy", "mps"), "nvidia.com/gpu", "8"), many(4, gpu), 4, 2, 2, ""},
		"NVIDIA, labels of old days": {node(t, "n", a100, "nvidia.com/gpu", "40"), many(3, gpu), 4, 3, 2, "its resources amount to 40 GPUs, its labels to 4"},
		"NVIDIA, plugin down":        {node(t, "n", a100, "nvidia.com/gpu", "0"), nil, 4, 0, 0, ""},
		"NVIDIA, MIG mixed":          {node(t, "n", a100, "nvidia.com/gpu", "0", "nvidia.com/mig-3g.40gb", "8"), many(4, func(n string) *v1.Pod { return pod(t, n, "n", "nvidia.com/mig-3g.40gb", "1") }), 4, 2, 2, ""},
		"NVIDIA, MIG single":         {node(t, "n", map[string]string{labelProduct: product + "-MIG-1g.10gb", labelCount: "14"}, "nvidia.com/gpu", "14"), many(7, gpu), 2, 1, 1, ""},
		"NVIDIA, MIG sliced": {node(t, "n", map[string]string{labelProduct: product + "-MIG-1g.10gb-SHARED", labelCount: "14", labelReplicas: "2"}, "nvidia.com/gpu", "28"),
			many(14, gpu), 2, 1, 1, ""},
		"GKE, time sharing":  {node(t, "n", gke, "nvidia.com/gpu", "8"), many(4, gpu), 2, 1, 1, ""},
		"GKE, partitions":    {node(t, "n", with(gke, labelPartition, "1g.10gb", labelClients, "1"), "nvidia.com/gpu", "14"), many(7, gpu), 2, 1, 1, ""},
		"KAI, full":          {node(t, "n", a100, "nvidia.com/gpu", "4"), append(reservations("kai-resource-reservation", 4), many(4, fraction("gpu-fraction", "0.9"))...), 4, 4, 4, ""},
		"KAI, halves":        {node(t, "n", a100, "nvidia.com/gpu", "4"), append(reservations("kai-resource-reservation", 4), many(8, fraction("gpu-fraction", "0.5"))...), 4, 4, 4, ""},
		"KAI, sparse":        {node(t, "n", a100, "nvidia.com/gpu", "4"), append(reservations("kai-resource-reservation", 4), many(4, fraction("gpu-fraction", "0.2"))...), 4, 4, 1, ""},
		"KAI, memory":        {node(t, "n", a100, "nvidia.com/gpu", "4"), append(reservations("kai-resource-reservation", 1), many(2, fraction("gpu-memory", "30000"))...), 4, 1, 1, ""},
		"KAI, several":       {node(t, "n", a100, "nvidia.com/gpu", "4"), append(reservations("kai-resource-reservation", 2), many(1, fraction("gpu-fraction", "0.7", "gpu-fraction-num-devices", "2"))...), 4, 2, 2, ""},
		"KAI, nobody":        {node(t, "n", a100, "nvidia.com/gpu", "4"), reservations("kai-resource-reservation", 2), 4, 0, 0, "2 GPUs are reserved, but no pod"},
		"Run:ai":             {node(t, "n", a100, "nvidia.com/gpu", "4"), append(reservations("runai-reservation", 2), many(2, fraction("gpu-fraction", "0.6"))...), 4, 2, 2, ""},
		"HAMi, with labels":  {hamiNodeOf(4, a100), hami(8, "nvidia.com/gpumem", "40000", "nvidia.com/gpucores", "50"), 4, 4, 4, ""},
		"HAMi, without":      {rtx, []runtime.Object{pod(t, "one", "n", "nvidia.com/gpu", "1", "nvidia.com/gpumem", "4000", "nvidia.com/gpucores", "30"), two}, 1, 1, 1, ""},
		"HAMi, old list":     {annotated(node(t, "n", nil, "nvidia.com/gpu", "20"), hamiNode, "GPU-0,10,32768,100,NVIDIA-Tesla V100,0,true:GPU-1,10,32768,100,NVIDIA-Tesla V100,0,true:"), hami(2, "nvidia.com/gpucores", "50", "nvidia.com/gpumem", "9000"), 2, 1, 1, ""},
		"HAMi, whole":        {hamiNodeOf(4, nil), hami(2), 4, 2, 1, ""},
		"HAMi, memory alone": {hamiNodeOf(4, nil), hami(8, "nvidia.com/gpumem", "10000"), 4, 1, 1, ""},
		"HAMi, percentage":   {hamiNodeOf(4, nil), hami(4, "nvidia.com/gpumem-percentage", "25", "nvidia.com/gpucores", "25"), 4, 1, 1, ""},
		"HAMi, allocated": {hamiNodeOf(4, nil), many(4, func(n string) *v1.Pod {
			return annotated(pod(t, n, "n", "nvidia.com/gpu", "1", "nvidia.com/gpucores", "20", "nvidia.com/gpumem", "8000"), hamiPod, "GPU-"+n[1:]+",NVIDIA,8000,20:;")
		}), 4, 4, 1, ""},
		"Volcano": {annotated(node(t, "n", nil, "volcano.sh/vgpu-number", "20"), volcanoNode, "GPU-0,10,81920,NVIDIA-A100,true:GPU-1,10,81920,NVIDIA-A100,true:"),
			many(4, func(n string) *v1.Pod {
				return pod(t, n, "n", "volcano.sh/vgpu-number", "1", "volcano.sh/vgpu-memory", "20000", "volcano.sh/vgpu-cores", "25")
			}), 2, 1, 1, ""},
		"Volcano, no list": {node(t, "n", nil, "volcano.sh/vgpu-number", "20"), nil, 20, 0, 0, "no label says"},
		"Koordinator": {koordinator, []runtime.Object{
			pod(t, "a", "n", "koordinator.sh/gpu", "200"), pod(t, "b", "n", "koordinator.sh/gpu", "50"),
			pod(t, "c", "n", "koordinator.sh/gpu.shared", "1", "koordinator.sh/gpu-core", "40", "koordinator.sh/gpu-memory-ratio", "40"),
		}, 4, 3, 3, ""},
		"Koordinator, allocated": {koordinator, many(3, func(n string) *v1.Pod {
			return annotated(pod(t, n, "n", "koordinator.sh/gpu-core", "20", "koordinator.sh/gpu-memory-ratio", "20"), koordinatorPod, `{"gpu":[{"minor":`+n[1:]+`}]}`)
		}), 4, 3, 1, ""},
		"DRA": {node(t, "n", nil), slices.Concat([]runtime.Object{driverSlice("n", 4)},
			claiming(t, "a", "a", nvidiaDriver, false, "gpu-0"), claiming(t, "b", "b", nvidiaDriver, false, "gpu-1", "gpu-2")), 4, 3, 3, ""},
		"DRA, one claim for two": {node(t, "n", nil), slices.Concat([]runtime.Object{driverSlice("n", 4)},
			claiming(t, "a", "a", nvidiaDriver, false, "gpu-0"), claiming(t, "b", "a", nvidiaDriver, false)), 4, 1, 1, ""},
		"DRA, MIG": {node(t, "n", a100), slices.Concat([]runtime.Object{driverSlice("n", 4)},
			claiming(t, "a", "a", nvidiaDriver, false, "gpu-3-mig-3g40gb-0"), claiming(t, "b", "b", nvidiaDriver, false, "gpu-3-mig-3g40gb-1")), 4, 1, 1, ""},
		"DRA, for monitoring":   {node(t, "n", nil), append(claiming(t, "a", "a", nvidiaDriver, true, "gpu-0"), driverSlice("n", 4)), 4, 0, 0, ""},
		"DRA, for network":      {node(t, "n", nil), append(claiming(t, "a", "a", "dra.net", false, "eth1"), driverSlice("n", 4)), 4, 0, 0, ""},
		"DRA, another driver":   {node(t, "n", nil), append(claiming(t, "a", "a", "gpu.intel.com", false, "x"), driverSlice("n", 4)), 4, 0, 0, "device x of driver gpu.intel.com"},
		"DRA, no claim":         {node(t, "n", nil), append(claiming(t, "a", "a", nvidiaDriver, false), driverSlice("n", 4)), 4, 0, 0, "resource claim gpu: not found"},
		"labels without plugin": {node(t, "n", a100), nil, 4, 0, 0, "no known resource hands out"},
		"init containers": {eight, []runtime.Object{
			withInit(t, gpu("both"), false, "nvidia.com/gpu", "4"), withInit(t, pod(t, "only", "n"), false, "nvidia.com/gpu", "2"),
		}, 8, 6, 6, ""},
		"sidecars":                {eight, []runtime.Object{withInit(t, withInit(t, gpu("a"), true, "nvidia.com/gpu", "1"), false, "nvidia.com/gpu", "2")}, 8, 3, 3, ""},
		"several init containers": {eight, []runtime.Object{withInit(t, withInit(t, gpu("a"), false, "nvidia.com/gpu", "1"), false, "nvidia.com/gpu", "2")}, 8, 2, 2, ""},
		"more than there is":      {node(t, "n", a100, "nvidia.com/gpu", "4"), many(5, gpu), 4, 4, 3, "its pods add up to 5.0 GPUs, but it has 4"},
		"RuntimeClass":            {node(t, "n", a100, "nvidia.com/gpu", "4"), []runtime.Object{privileged}, 4, 0, 0, "ml/p on node n: RuntimeClass nvidia"},
		"visible devices":         {node(t, "n", a100, "nvidia.com/gpu", "4"), []runtime.Object{visible}, 4, 0, 0, "NVIDIA_VISIBLE_DEVICES"},
		"tool of the node":        {node(t, "n", a100, "nvidia.com/gpu", "4"), []runtime.Object{tool}, 4, 0, 0, ""},
		"KubeShare":               {node(t, "n", a100, "nvidia.com/gpu", "4"), many(1, fraction("sharedgpu/gpu_request", "0.5")), 4, 0, 0, "annotation sharedgpu/gpu_request"},
		"Aliyun":                  {node(t, "n", a100, "aliyun.com/gpu-mem", "320"), many(1, func(n string) *v1.Pod { return pod(t, n, "n", "aliyun.com/gpu-mem", "20") }), 4, 0, 0, "unknown resource aliyun.com/gpu-mem"},
		"gpu-manager":             {node(t, "n", a100, "nvidia.com/gpu", "4"), many(1, func(n string) *v1.Pod { return pod(t, n, "n", "tencent.com/vcuda-core", "20") }), 4, 0, 0, "unknown resource tencent.com/vcuda-core"},
		"KubeVirt":                {node(t, "n", a100, "nvidia.com/gpu", "4"), many(1, func(n string) *v1.Pod { return pod(t, n, "n", "nvidia.com/GA102GL_A10", "1") }), 4, 0, 0, "unknown resource nvidia.com/GA102GL_A10"},
		"Intel, shared, by cores": {node(t, "n", nil, "gpu.intel.com/i915", "4"), many(1, func(n string) *v1.Pod {
			return pod(t, n, "n", "gpu.intel.com/i915", "1", "gpu.intel.com/millicores", "500")
		}), 4, 1, 1, "gpu.intel.com/millicores"},
	} {
		t.Run(name, func(t *testing.T) {
			c := mustRead(t, Options{GPUMemory: 81920}, append(slices.Clone(tc.objects), tc.node)...)
			row := whatif.Total(whatif.Compare(c.Nodes, c.Pods))
			if row.GPUs != tc.gpus || row.HeldGPUs != tc.held || row.NeededGPUs != tc.needed {
				t.Errorf("%d GPUs, %d held, %d needed; want %d, %d, %d\n%+v\n%q", row.GPUs, row.HeldGPUs, row.NeededGPUs, tc.gpus, tc.held, tc.needed, c.Pods, c.Notes)
			}
			if unknown := strings.Join(c.Unknown, "\n"); (unknown == "") != (tc.unknown == "") || !strings.Contains(unknown, tc.unknown) {
				t.Errorf("not understood: %q, want %q", unknown, tc.unknown)
			}
		})
	}
}

// TestMixtures: on nodes of random sharers, no more is held than there is; pods that have their GPUs to themselves need no more than they hold;
// and if any pod holds GPUs in a way that is not known, it is among the unknown, else nothing is.
func TestMixtures(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 3))
	for range 60 {
		var objects []runtime.Object
		strange, apart, count, all := 0, true, 0, map[string]bool{}
		for at := range 1 + random.IntN(4) {
			name := fmt.Sprint("n", at)
			add := func(namespace string, annotations []string, limits ...string) {
				count++
				objects = append(objects, in(namespace, annotated(pod(t, fmt.Sprint("p", count), name, limits...), annotations...)))
			}
			gpus := 1 + random.IntN(4)
			labels := with(a100, labelCount, fmt.Sprint(gpus))
			n := node(t, name, labels, "nvidia.com/gpu", fmt.Sprint(gpus))
			kind := random.IntN(5)
			all[fmt.Sprint(kind)] = true
			apart = apart && kind == 0
			for range gpus {
				switch kind {
				case 0:
					add("ml", nil, "nvidia.com/gpu", "1")
				case 1:
					add("kai-resource-reservation", nil, "nvidia.com/gpu", "1")
					for range 1 + random.IntN(3) {
						add("ml", []string{"gpu-fraction", "0.3"})
					}
				case 2:
					for range 1 + random.IntN(2) {
						add("ml", nil, "nvidia.com/mig-3g.40gb", "1")
					}
				case 3:
					for range 1 + random.IntN(4) {
						add("ml", nil, "nvidia.com/gpu", "1", "nvidia.com/gpumem", "20000", "nvidia.com/gpucores", fmt.Sprint(1+random.IntN(25)))
					}
				case 4:
					for range 1 + random.IntN(4) {
						add("ml", nil, "nvidia.com/gpu.shared", "1")
					}
				}
			}
			switch kind {
			case 2:
				n.Status.Capacity["nvidia.com/gpu"] = resource.Quantity{}
				n.Status.Capacity["nvidia.com/mig-3g.40gb"] = *resource.NewQuantity(int64(2*gpus), resource.DecimalSI)
			case 3:
				n.Annotations = map[string]string{hamiNode: hamiList(gpus, 81920, "NVIDIA-A100")}
				n.Status.Capacity["nvidia.com/gpu"] = *resource.NewQuantity(int64(10*gpus), resource.DecimalSI)
			case 4:
				n.Labels[labelReplicas] = "4"
				n.Status.Capacity = resources(t, "nvidia.com/gpu.shared", fmt.Sprint(4*gpus))
			}
			if random.IntN(6) == 0 {
				strange++
				add("ml", []string{"example.com/gpu-part", "1"})
			}
			objects = append(objects, n)
		}
		c := mustRead(t, Options{}, objects...)
		for _, row := range whatif.Compare(c.Nodes, c.Pods) {
			if row.HeldGPUs > row.GPUs || apart && row.NeededGPUs > row.HeldGPUs {
				t.Errorf("%v: %+v", slices.Sorted(maps.Keys(all)), row)
			}
		}
		if len(c.Unknown) != strange {
			t.Errorf("%v: %q are not understood, want %d", slices.Sorted(maps.Keys(all)), c.Unknown, strange)
		}
	}
}
