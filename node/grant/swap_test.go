package grant

import (
	"fmt"
	"math/rand/v2"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/packing"
	"github.com/gshare-dev/gshare/vgpu/residency"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// swapBook has slices that take class swap, with 40 GiB of the host beyond the 80 GiB of each, and 1 GiB set aside for each pod.
func swapBook(ids ...string) *Book {
	b := newBook(ids...)
	s := b.slices
	for i := range s.All {
		s.All[i].Classes = append(s.All[i].Classes, share.Swap)
		s.All[i].Swap = packing.SwapSpace{Host: 40 << 30, Kept: 1 << 30}
	}
	b.SetSlices(s)
	return b
}

// swapPod is a pod of class swap that is placed on a slice with all of its SM-time and so many GiB.
func swapPod(uid, slice string, gib int64) *v1.Pod {
	pod := podOf(uid, slice, 100, 100)
	for _, list := range []v1.ResourceList{pod.Spec.Containers[0].Resources.Limits, pod.Spec.Containers[0].Resources.Requests} {
		list[kube.ResourceMemory] = *resource.NewQuantity(gib<<10, resource.DecimalSI)
	}
	p := placementFor(pod, slice, 100, 100)
	v := &p.Containers[0].VGPUs[0]
	v.Class, v.Share.Memory = share.Swap, share.Bytes(gib)<<30
	place(pod, p)
	return pod
}

// TestBookInTurn: the agent does not believe the scheduler, and one at a time holds the memory of the slice.
func TestBookInTurn(t *testing.T) {
	b := swapBook("A")
	try := func(pod *v1.Pod, deviceID string) (Grant, Reason) {
		t.Helper()
		g, _, refusal := b.Admit(claim(pod, deviceID), start)
		if refusal != nil {
			return g, refusal.Reason
		}
		return g, ""
	}
	if _, why := try(wanting(swapPod("first", "A", 60), 1, residency.Warm), "g0-0"); why != AwaitsTurn {
		t.Errorf("one that is wanted Warm starts: %q", why)
	}
	first, why := try(wanting(swapPod("first", "A", 60), 2, residency.Hot), "g0-0")
	if why != "" || first.Residency != (residency.Reached{Seq: 2, Level: residency.Hot}) {
		t.Fatalf("%q, %+v", why, first)
	}
	second := wanting(swapPod("second", "A", 30), 1, residency.Hot)
	if _, why := try(second, "g0-1"); why != AwaitsTurn {
		t.Errorf("beside one that has its turn: %q", why)
	}
	if _, why := try(swapPod("plain", "A", 1), "g0-1"); why != AwaitsTurn {
		t.Errorf("one that is no replica: %q", why)
	}
	if _, why := try(wanting(swapPod("large", "A", 61), 1, residency.Hot), "g0-2"); why != DoesNotFit {
		t.Errorf("more than slice and host: %q", why)
	}
	if _, why := try(podOf("mps", "A", 1, 1), "g0-3"); why != DoesNotFit {
		t.Errorf("of another class: %q", why)
	}
	b.SetResidency(first.ID(), residency.Reached{Seq: 3, Level: residency.Warm, Memory: 1 << 30})
	if _, why := try(podOf("mps", "A", 1, 1), "g0-3"); why != DoesNotFit {
		t.Errorf("of another class beside a parked one: %q", why)
	}
	if !b.FitsAt(first.ID(), residency.Hot, Placed(second, "n")) {
		t.Error("one that has not started keeps another from its turn")
	}
	g, why := try(second, "g0-1")
	if why != "" {
		t.Fatalf("beside a parked one: %q", why)
	}
	for _, l := range []residency.Level{residency.Shared, residency.Hot} {
		if b.FitsAt(first.ID(), l, nil) {
			t.Errorf("a second one may be %v", l)
		}
	}
	if got := b.GrantedMemory("A"); got != 31<<30 {
		t.Errorf("memory of %d bytes may be held", got)
	}
	b.Release(g.ID())
	if !b.FitsAt(first.ID(), residency.Hot, nil) {
		t.Error("no turn after the other one has ended")
	}
}

// TestBookNeverExceeds does at random what agents do with pods of class swap, however they were placed: their memory fits at any time.
func TestBookNeverExceeds(t *testing.T) {
	random := rand.New(rand.NewPCG(22, 3))
	began, waited, refused := 0, 0, 0
	for round := range 100 {
		b := swapBook("A", "B")
		for step := range 60 {
			id := random.IntN(8)
			uid, slice := fmt.Sprintf("%d-%d", round, id), []string{"A", "B"}[id%2]
			owner := Owner{UID: swapPod(uid, slice, 1).UID, Container: "main"}
			g, has := b.Get(owner.ID())
			switch {
			case !has:
				pod := swapPod(uid, slice, int64(10+10*random.IntN(7)))
				if random.IntN(4) > 0 {
					pod = wanting(pod, 1, residency.Hot)
				}
				switch _, _, refusal := b.Admit(claim(pod, fmt.Sprint("t", id)), start); {
				case refusal == nil:
					began++
				case refusal.Reason == AwaitsTurn:
					waited++
				default:
					refused++
				}
			case g.Level() == residency.Warm:
				if b.FitsAt(g.ID(), residency.Hot, nil) {
					b.SetResidency(g.ID(), residency.Reached{Seq: g.Residency.Seq + 1, Level: residency.Hot})
				}
			case random.IntN(4) == 0:
				b.Release(g.ID())
			default:
				b.SetResidency(g.ID(), residency.Reached{Seq: g.Residency.Seq + 1, Level: residency.Warm, Memory: 1 << 30})
			}
			for _, slice := range []string{"A", "B"} {
				held, all, having := share.Bytes(0), share.Bytes(0), 0
				for _, g := range b.On(slice) {
					all += g.VGPUs[0].Share.Memory
					if g.Level() == residency.Warm {
						held += g.Residency.Memory
						continue
					}
					held += g.VGPUs[0].Share.Memory
					having++
				}
				if held > 80<<30 || all > 120<<30 || having > 1 || b.GrantedMemory(slice) != held {
					t.Fatalf("round %d, step %d: %d bytes are held, %d granted, %d have a turn", round, step, held, all, having)
				}
			}
		}
	}
	if began < 300 || waited < 300 || refused < 100 {
		t.Errorf("the cases are one-sided: %d began, %d waited, %d refused", began, waited, refused)
	}
}
