package ledger

import (
	"slices"
	"strconv"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/gshare-dev/gshare/vgpu/kube"
)

func assumed(uid types.UID, node string) Assumed {
	return Assumed{Placement: kube.Placement{UID: uid, Node: node, Model: kube.Slots}, Tenant: "team"}
}

func uidsOn(l *Ledger, node string) []types.UID {
	var out []types.UID
	for _, p := range l.OnNode(node) {
		out = append(out, p.UID)
	}
	return out
}

func TestReserveIsIdempotent(t *testing.T) {
	l, c := New(), NewCycle()
	for range 3 {
		l.Reserve(assumed("b", "n1"), c)
		l.Reserve(assumed("a", "n1"), c)
	}
	if got := uidsOn(l, "n1"); !slices.Equal(got, []types.UID{"a", "b"}) {
		t.Errorf("OnNode = %v, want a and b, by UID", got)
	}
	for range 2 {
		l.Unreserve("a", c)
	}
	if _, ok := l.Get("a"); ok || l.Len() != 1 {
		t.Errorf("after Unreserve a is there: %v, %d entries", ok, l.Len())
	}
}

func TestReserveMovesThePod(t *testing.T) {
	l, c := New(), NewCycle()
	l.Reserve(assumed("a", "n1"), c)
	l.Reserve(assumed("a", "n2"), c)
	if on1, on2 := uidsOn(l, "n1"), uidsOn(l, "n2"); len(on1) != 0 || len(on2) != 1 {
		t.Errorf("n1 has %v, n2 has %v; want the pod on n2 alone", on1, on2)
	}
	if got, ok := l.Get("a"); !ok || got.Node != "n2" {
		t.Errorf("Get = %v %v", got, ok)
	}
}

// The first attempt's bind fails late, after the pod has been reserved again.
func TestLateUnreserveFreesNothing(t *testing.T) {
	l, first, second := New(), NewCycle(), NewCycle()
	l.Reserve(assumed("a", "n1"), first)
	l.Reserve(assumed("a", "n1"), second)
	l.Unreserve("a", first)
	l.Unreserve("a", nil)
	if l.Len() != 1 {
		t.Fatal("an older attempt freed what the newer reserved")
	}
	l.Unreserve("a", second)
	if l.Len() != 0 {
		t.Error("the attempt could not free its own assumed")
	}
}

func TestForget(t *testing.T) {
	l := New()
	l.Reserve(assumed("a", "n1"), NewCycle())
	l.Forget("a")
	l.Forget("a")
	l.Unreserve("never", NewCycle())
	if l.Len() != 0 || len(l.onNodes) != 0 {
		t.Errorf("%d assumed and %d nodes stay behind", l.Len(), len(l.onNodes))
	}
}

func TestConcurrentUse(t *testing.T) {
	l := New()
	var wg sync.WaitGroup
	for worker := range 8 {
		wg.Go(func() {
			for i := range 200 {
				uid, c := types.UID(strconv.Itoa(worker*1000+i)), NewCycle()
				l.Reserve(assumed(uid, "n"+strconv.Itoa(i%3)), c)
				l.OnNode("n1")
				l.Get(uid)
				if i%2 == 0 {
					l.Forget(uid)
				}
				l.Unreserve(uid, c)
			}
		})
	}
	wg.Wait()
	if l.Len() != 0 || len(l.onNodes) != 0 {
		t.Errorf("%d assumed and %d nodes stay behind", l.Len(), len(l.onNodes))
	}
}
