package grant

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/residency"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// TestKeptMemory: pods that were bound when all of a slice's memory was offered start again after a reboot, and come out of reserve with the memory that
// they have. One that is parked does not get what is kept for contexts, nor does anybody get more than the slice has.
func TestKeptMemory(t *testing.T) {
	const gib = 1024 * share.MiB
	admit := func(b *Book, uid string, memory share.Bytes) (Grant, *Refusal) {
		pod := podOf(uid, "A", 20, 20)
		r := pod.Spec.Containers[0].Resources
		r.Limits[kube.ResourceMemory] = *resource.NewQuantity(int64(memory/share.MiB), resource.DecimalSI)
		r.Requests[kube.ResourceMemory] = r.Limits[kube.ResourceMemory]
		p := placementFor(pod, "A", 20, 20)
		p.Containers[0].VGPUs[0].Share.Memory = memory
		place(pod, p)
		text, err := residency.Created(residency.Hot).Encode()
		if err != nil {
			t.Fatal(err)
		}
		pod.Annotations[kube.AnnotationResidency] = text
		g, _, refusal := b.Admit(claim(pod, "device-"+uid), start)
		return g, refusal
	}
	b := newBook("A")
	b.slices.All[0].Memory, b.slices.Kept = 79*gib, map[string]share.Bytes{"A": gib}
	first, refusal := admit(b, "first", 40*gib)
	if refusal != nil {
		t.Fatal(refusal)
	}
	if _, refusal := admit(b, "second", 40*gib); refusal != nil {
		t.Errorf("a pod that was bound before does not start again: %v", refusal)
	}
	if _, refusal := admit(b, "third", share.MiB); refusal == nil || refusal.Reason != DoesNotFit {
		t.Errorf("more than there is: %v", refusal)
	}
	for level, want := range map[residency.Level]bool{residency.Shared: true, residency.Warm: false} {
		b.SetResidency(first.ID(), residency.Reached{Level: level})
		if b.FitsAt(first.ID(), residency.Hot, nil) != want {
			t.Errorf("from %v it is raised: %t, want %t", level, !want, want)
		}
	}
}
