package grant

import (
	"fmt"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/residency"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// weights are those of the pods of these tests.
var weights = []share.Weights{{Digest: "sha256:00000000000000000000000000000000000000000000000000000000000000aa", Memory: 2634 * share.MiB}}

// loadedPod is a pod with 1 GiB of its own, placed on slice A with weights.
func loadedPod(uid string, w []share.Weights) *v1.Pod {
	pod := podOf(uid, "A", 10, 10)
	p := placementFor(pod, "A", 10, 10)
	p.Weights = w
	place(pod, p)
	return pod
}

// smallBook is of a node with one slice of so many MiB.
func smallBook(mib share.Bytes, store bool) *Book {
	b := newBook("A")
	b.slices.All[0].Memory, b.slices.All[0].Store = mib*share.MiB, store
	return b
}

func TestAdmitWeights(t *testing.T) {
	b := smallBook(3*1024+2634, true)
	admit := func(uid string, n int, w []share.Weights) *Refusal {
		_, changed, refusal := b.Admit(claim(loadedPod(uid, w), fmt.Sprint("g0-", n)), start)
		if changed {
			t.Errorf("%s: the placement changed", uid)
		}
		return refusal
	}
	for n, uid := range []string{"a", "b", "c", "c"} { // the last one starts again
		if refusal := admit(uid, min(n, 2), weights); refusal != nil {
			t.Fatalf("%s: %v", uid, refusal)
		}
	}
	if got, want := b.GrantedMemory("A"), (3*1024+2634)*share.MiB; got != want {
		t.Errorf("%d bytes are granted, want %d", got, want)
	}
	if refusal := admit("d", 3, weights); refusal == nil || refusal.Reason != DoesNotFit || !strings.Contains(refusal.Text, "insufficient GPU memory") {
		t.Errorf("a fourth one: %v", refusal)
	}
	a := loadedPod("a", weights)
	b.Release(claim(a, "g0-0").Owner().ID())
	if got, want := b.GrantedMemory("A"), (2*1024+2634)*share.MiB; got != want {
		t.Errorf("%d bytes are granted once one has gone, want %d", got, want)
	}
	other := []share.Weights{{Digest: weights[0].Digest[:len(weights[0].Digest)-1] + "b", Memory: share.MiB}}
	if refusal := admit("e", 3, other); refusal == nil || refusal.Reason != DoesNotFit {
		t.Errorf("one with other weights: %v", refusal)
	}
	if refusal := admit("f", 3, nil); refusal != nil {
		t.Errorf("one without weights: %v", refusal)
	}
	if _, changed, refusal := b.Admit(claim(loadedPod("b", nil), "g0-1"), start); !changed || refusal != nil {
		t.Errorf("a placement whose weights have changed: %t, %v", changed, refusal)
	}
}

func TestAdmitWeightsWithoutAStore(t *testing.T) {
	_, _, refusal := smallBook(8192, false).Admit(claim(loadedPod("a", weights), "g0-0"), start)
	if refusal == nil || refusal.Reason != DoesNotFit || !strings.Contains(refusal.Text, "no model store") {
		t.Errorf("%v", refusal)
	}
}

// Pods that are bound and have not started count with their weights, too.
func TestWeightsOfWaitingPods(t *testing.T) {
	for mib, fits := range map[share.Bytes]bool{2*1024 + 2634: true, 2*1024 + 2633: false} {
		b := smallBook(mib, true)
		waiting := Placed(loadedPod("waiting", weights), "n")
		if _, _, refusal := b.Admit(claim(podOf("a", "A", 10, 10), "g0-0"), start); refusal != nil || len(waiting) != 1 {
			t.Fatal(refusal, waiting)
		}
		if got := b.FitsAt(b.All()[0].ID(), residency.Hot, waiting); got != fits {
			t.Errorf("in %d MiB it fits: %t, want %t", mib, got, fits)
		}
	}
}

// The annotation of a user does not change what was placed.
func TestAnnotationDoesNotChangeTheGrant(t *testing.T) {
	pod := loadedPod("a", weights)
	pod.Annotations[kube.AnnotationWeights] = string(weights[0].Digest) + "=1Mi"
	g, _, refusal := smallBook(8192, true).Admit(claim(pod, "g0-0"), start)
	if refusal != nil || share.MemoryOf(g.Weights) != 2634*share.MiB {
		t.Errorf("%v, %v", g.Weights, refusal)
	}
}
