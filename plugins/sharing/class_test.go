package sharing

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/residency"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// elastic requests SMs between two bounds.
func elastic(name string, sm int64, smLimit string) *v1.Pod {
	return gpuPod(name, sm, 100, annotation(kube.AnnotationSMLimit, smLimit))
}

// TestClassesStayApart: a slice has one class until it is empty.
func TestClassesStayApart(t *testing.T) {
	loose, looser, fixed := elastic("loose", 20, "60"), elastic("looser", 30, "60"), gpuPod("fixed", 20, 100)
	for name, test := range map[string]struct {
		there, comes *v1.Pod
		want         share.Isolation // empty: refused
	}{
		"elastic beside mps":     {fixed, loose, ""},
		"mps beside elastic":     {loose, fixed, ""},
		"elastic beside elastic": {loose, looser, share.Elastic},
		"mps beside mps":         {fixed, gpuPod("other", 20, 100), share.MPS},
	} {
		t.Run(name, func(t *testing.T) {
			info := newNodeInfo(gpuNode(t, "n1", 1))
			there := placed(t, test.there, "n1", "n1-0")
			info.add(there)
			if got := classOn(t, newPlugin(t, newHandle(info), 0), test.comes); got != test.want {
				t.Errorf("class %q, want %q", got, test.want)
			}
			info.remove(there)
			if classOn(t, newPlugin(t, newHandle(info), 0), test.comes) == "" {
				t.Errorf("%s: refused on the empty slice", name)
			}
		})
	}
}

// TestTurnsOnASlice: pods of class swap share a slice that all of them have whole, where the node is configured for it, and no other is placed there.
func TestTurnsOnASlice(t *testing.T) {
	swap := func(name string, gib int64) *v1.Pod {
		pod := gpuPod(name, 100, 100, annotation(kube.AnnotationIsolation, "swap"))
		for _, list := range []v1.ResourceList{pod.Spec.Containers[0].Resources.Limits, pod.Spec.Containers[0].Resources.Requests} {
			list[kube.ResourceMemory] = *resource.NewQuantity(gib<<10, resource.DecimalSI)
		}
		return pod
	}
	configured := func(hostMiB int64) *v1.Node {
		node := gpuNode(t, "n1", 1)
		inventory, _, err := kube.InventoryOf(node)
		if err != nil {
			t.Fatal(err)
		}
		s := &inventory.Slices[0]
		s.MemoryMiB, s.Classes, s.Swap = 40<<10, append(s.Classes, share.Swap), &kube.Swap{HostMiB: hostMiB, KeptMiB: 512}
		text, err := kube.EncodeInventory(inventory)
		if err != nil {
			t.Fatal(err)
		}
		node.Annotations[kube.AnnotationInventory] = text
		return node
	}
	parked := residencyOf(residency.Wanted{Seq: 2, Level: residency.Warm, Drained: true}, residency.Reached{Seq: 2, Level: residency.Warm, Memory: share.MiB})
	for name, test := range map[string]struct {
		node  *v1.Node
		there *v1.Pod // nil: none
		edits []edit
		comes *v1.Pod
		want  share.Isolation // empty: refused
	}{
		"alone":                    {configured(20 << 10), nil, nil, swap("b", 40), share.Swap},
		"two":                      {configured(20 << 10), swap("a", 30), nil, swap("b", 30), share.Swap},
		"beyond the host":          {configured(20 << 10), swap("a", 30), nil, swap("b", 31), ""},
		"beyond it, beside parked": {configured(20 << 10), swap("a", 30), []edit{parked}, swap("b", 31), ""},
		"mps beside it":            {configured(20 << 10), swap("a", 1), []edit{parked}, gpuPod("b", 10, 10), ""},
		"beside mps":               {configured(20 << 10), gpuPod("a", 10, 10), nil, swap("b", 1), ""},
	} {
		t.Run(name, func(t *testing.T) {
			info := newNodeInfo(test.node)
			if test.there != nil {
				pod := test.there.DeepCopy()
				there := placed(t, pod, "n1", "n1-0")
				if test.there.Annotations[kube.AnnotationIsolation] == "swap" {
					placedAs(t, there, share.Swap)
				}
				info.add(version(there, "3", test.edits...))
			}
			if got := classOn(t, newPlugin(t, newHandle(info), 0), test.comes); got != test.want {
				t.Errorf("class %q, want %q", got, test.want)
			}
		})
	}
}

// placedAs changes the class of a pod's placement.
func placedAs(t *testing.T, pod *v1.Pod, class share.Isolation) {
	t.Helper()
	p, _, err := kube.PlacementOf(pod)
	if err != nil {
		t.Fatal(err)
	}
	p.Containers[0].VGPUs[0].Class = class
	text, err := kube.EncodePlacement(p)
	if err != nil {
		t.Fatal(err)
	}
	pod.Annotations[kube.AnnotationPlacement] = text
}

// classOn is the class under which the pod gets its share of the first node; empty if it gets none.
func classOn(t *testing.T, p *Plugin, pod *v1.Pod) share.Isolation {
	t.Helper()
	state, _ := prefilter(t, p, pod)
	switch status := p.Filter(t.Context(), state, pod, p.handle.(*fakeHandle).snapshot[0]); {
	case status.Code() == fwk.Unschedulable:
		return ""
	case !status.IsSuccess():
		t.Fatal(status)
	}
	if status := p.Reserve(t.Context(), state, pod, "n1"); !status.IsSuccess() {
		t.Fatal(status)
	}
	assumed, _ := p.ledger.Get(pod.UID)
	return assumed.Containers[0].VGPUs[0].Class
}

// TestMovedLimitStillCounts: a pod whose limit was lowered may have it back, so its placement still counts against γ.
func TestMovedLimitStillCounts(t *testing.T) {
	for _, moved := range []string{"60", "20"} {
		info := newNodeInfo(gpuNode(t, "n1", 1))
		for _, name := range []string{"a", "b"} {
			pod := placed(t, elastic(name, 20, "60"), "n1", "n1-0")
			annotation(kube.AnnotationSMLimit, moved)(pod)
			info.add(pod)
		}
		for limit, want := range map[string]share.Isolation{"30": share.Elastic, "31": ""} { // of 150
			if got := classOn(t, newPlugin(t, newHandle(info), 0), elastic("c", 20, limit)); got != want {
				t.Errorf("moved to %q: a third limit of %s gives class %q, want %q", moved, limit, got, want)
			}
		}
	}
}
