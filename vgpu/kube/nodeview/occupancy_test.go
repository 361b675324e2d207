package nodeview

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/packing"
	"github.com/gshare-dev/gshare/vgpu/residency"
	"github.com/gshare-dev/gshare/vgpu/share"
)

func TestSlicesSayWhereGPUsAre(t *testing.T) {
	got := Slices(kube.Inventory{Slices: []kube.Slice{{ID: "a", NUMA: new(0), NVLink: 2}, {ID: "b", NUMA: new(1)}, {ID: "c"}}})
	for i, want := range []packing.Locality{{NVLink: 2, NUMA: 1}, {NUMA: 2}, {}} {
		if got[i].Locality != want {
			t.Errorf("%s is at %+v, want %+v", got[i].ID, got[i].Locality, want)
		}
	}
}

// occupied derives a node of one GPU that holds the pods.
func occupied(t *testing.T, pods []*v1.Pod) *packing.Node {
	t.Helper()
	b := &OccupancyBuilder{
		Node:       packing.NewNode("n1", []packing.Slice{{ID: "GPU-1", Device: "GPU-1", Healthy: true, MaxShares: 8}}, 0, 0),
		PodRequest: PodRequestOf,
	}
	for _, pod := range pods {
		b.AddPod(pod)
	}
	if err := b.Build(); err != nil {
		t.Fatal(err)
	}
	return b.Node
}

// bound is a pod on the GPU, with that much of it.
func bound(t *testing.T, name string, sh share.Share) *v1.Pod {
	t.Helper()
	q := func(n int64) resource.Quantity { return *resource.NewQuantity(n, resource.DecimalSI) }
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ml", Name: name, UID: types.UID("uid-" + name), Annotations: map[string]string{}},
		Spec: v1.PodSpec{NodeName: "n1", Containers: []v1.Container{{Name: "main", Resources: v1.ResourceRequirements{Limits: v1.ResourceList{
			kube.ResourceSM: q(int64(sh.SMRequest / 10)), kube.ResourceQuota: q(int64(sh.QuotaRequest / 10)), kube.ResourceMemory: q(int64(sh.Memory / share.MiB)),
		}}}}},
	}
	kube.Complete(pod)
	text, err := kube.EncodePlacement(kube.Placement{Node: "n1", UID: pod.UID, Model: kube.Slots, Containers: []kube.PlacedContainer{{
		Name: "main", VGPUs: []kube.PlacedVGPU{{Slice: "GPU-1", Class: share.MPS, Priority: share.SLO, Share: sh}}}}})
	if err != nil {
		t.Fatal(err)
	}
	pod.Annotations[kube.AnnotationPlacement] = text
	return pod
}

func randomShare(random *rand.Rand) share.Share {
	sm, quota := share.PerMille(1+random.IntN(100))*10, share.PerMille(1+random.IntN(100))*10
	return share.Share{SMRequest: sm, SMLimit: sm, QuotaRequest: quota, QuotaLimit: quota, Memory: share.Bytes(1+random.IntN(4096)) * share.MiB}
}

func annotate(t *testing.T, pod *v1.Pod, w residency.Wanted, r residency.Reached) {
	t.Helper()
	for key, encode := range map[string]func() (string, error){kube.AnnotationResidency: w.Encode, kube.AnnotationResidencyReached: r.Encode} {
		text, err := encode()
		if err != nil {
			t.Fatal(err)
		}
		pod.Annotations[key] = text
	}
}

// Whatever is wanted and reached, the agent has recorded at most the higher of the two. The scheduler never counts less than that.
func TestCountsWhatTheAgentMayHaveRecorded(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 9))
	levels := []residency.Level{residency.Warm, residency.Shared, residency.Hot}
	fewer := 0
	for range 500 {
		var pods []*v1.Pod
		var recorded, all packing.Load
		for i := range 1 + random.IntN(6) {
			sh := randomShare(random)
			pod := bound(t, fmt.Sprint("p", i), sh)
			w := residency.Wanted{Seq: int64(2 + random.IntN(2)), Level: levels[random.IntN(3)]}
			r := residency.Reached{Seq: int64(1 + random.IntN(3)), Level: levels[random.IntN(3)]}
			if r.Level == residency.Warm {
				r.Memory = share.Bytes(random.Int64N(int64(sh.Memory)))
			}
			annotate(t, pod, w, r)
			pods = append(pods, pod)
			level := max(w.Level, r.Level)
			recorded.Add(packing.Resident{Share: level.Charge(sh, r.Memory)})
			all.Add(packing.Resident{Share: sh})
		}
		got := &occupied(t, pods).Loads[0]
		if got.Requested() < recorded.Requested() || got.Memory() < recorded.Memory() || len(got.Residents()) != len(pods) {
			t.Fatalf("counted %d SM-time, %d bytes, %d shares; recorded may be %d SM-time, %d bytes, %d shares",
				got.Requested(), got.Memory(), len(got.Residents()), recorded.Requested(), recorded.Memory(), len(pods))
		}
		if got.Requested() < all.Requested() && got.Memory() < all.Memory() {
			fewer++
		}
	}
	if fewer < 100 {
		t.Errorf("only %d of 500 nodes count less than their placements", fewer)
	}
}

// Instances that are Hot, and pods of which nothing is known yet, count as pods without any residency.
func TestHotCountsAsBefore(t *testing.T) {
	random := rand.New(rand.NewPCG(2, 9))
	for range 100 {
		var plain, hot []*v1.Pod
		for i := range 1 + random.IntN(6) {
			pod := bound(t, fmt.Sprint("p", i), randomShare(random))
			plain = append(plain, pod)
			instance := pod.DeepCopy()
			annotate(t, instance, residency.Wanted{Seq: 4, Level: residency.Hot}, residency.Reached{Seq: int64(1 + random.IntN(4)), Level: residency.Hot})
			if random.IntN(3) == 0 {
				delete(instance.Annotations, kube.AnnotationResidencyReached)
			}
			hot = append(hot, instance)
		}
		if diff := cmp.Diff(occupied(t, plain).Loads[0].Residents(), occupied(t, hot).Loads[0].Residents()); diff != "" {
			t.Fatal(diff)
		}
	}
}
