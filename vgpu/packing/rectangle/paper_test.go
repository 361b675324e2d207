package rectangle

import (
	"testing"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// The paper's pods: ResNet 12 % SM x 40 % quota, RNNT 24 x 40, BERT 50 x 60 (reference values 7.5).
var pods = map[rune]Box{'R': box(400, 120), 'N': box(400, 240), 'B': box(600, 500)}

// gpusFor returns the number of slices that an order of arrival needs.
func gpusFor(t *testing.T, order string, put func([]*List, int, Box) (int, bool)) int {
	t.Helper()
	lists := []*List{NewList(), NewList(), NewList()}
	for id, pod := range order {
		if _, ok := put(lists, id, pods[pod]); !ok {
			t.Fatalf("%s: no place for %c", order, pod)
		}
	}
	used, placed := 0, 0
	for _, l := range lists {
		placed += len(l.Placed())
		if !l.Empty() {
			used++
		}
	}
	if placed != len(order) {
		t.Fatalf("%s: %d of %d placed", order, placed, len(order))
	}
	return used
}

// putAsPrinted uses a new slice at once (lines 2-4), whereas Put first tries to re-pack.
func putAsPrinted(lists []*List, id int, b Box) (int, bool) {
	i, ok := bestMatch(lists, b)
	if !ok {
		i, ok = firstEmpty(lists, b)
	}
	if ok {
		_, ok = lists[i].Place(id, b)
	}
	return i, ok
}

func TestReferenceOrders(t *testing.T) {
	for order, want := range map[string]int{"BBNNRRRR": 1, "BRNBRNRR": 1, "RRRRNNBB": 2, "RNBRNBRR": 2} {
		t.Run(order, func(t *testing.T) {
			if got := gpusFor(t, order, putAsPrinted); got != want {
				t.Errorf("%s takes %d slices, want %d", order, got, want)
			}
		})
	}
}

// TestF27All420Orders checks F27: without re-packing, 282 of the 420 orders of arrival need a second slice; with it, none
// does.
func TestF27All420Orders(t *testing.T) {
	plain, repacking := map[int]int{}, map[int]int{}
	everyOrder("", map[rune]int{'R': 4, 'N': 2, 'B': 2}, func(order string) {
		plain[gpusFor(t, order, putAsPrinted)]++
		repacking[gpusFor(t, order, Put)]++
	})
	if len(plain) != 2 || plain[1] != 138 || plain[2] != 282 {
		t.Errorf("without re-packing: %v, want 138 x one and 282 x two", plain)
	}
	if len(repacking) != 1 || repacking[1] != 420 {
		t.Errorf("with re-packing: %v, want 420 x one", repacking)
	}
}

func everyOrder(prefix string, left map[rune]int, visit func(string)) {
	end := true
	for pod, n := range left {
		if n > 0 {
			end = false
			left[pod]--
			everyOrder(prefix+string(pod), left, visit)
			left[pod]++
		}
	}
	if end {
		visit(prefix)
	}
}

// TestF20OnlySufficientRectangles checks F20: with the inequalities as printed, the smallest rectangle wins even if it
// cannot hold the box.
func TestF20OnlySufficientRectangles(t *testing.T) {
	l := ListOf([]Rect{rect(0, 0, 500, 900)}) // leaves 500 x 1000 at the right and 1000 x 100 above
	if w, ok := l.Fit(box(400, 200)); !ok || w != (Waste{Area: 420000, ShortSide: 100}) {
		t.Errorf("waste %v %v, want that of the large rectangle", w, ok)
	}
	if _, ok := l.Fit(box(501, 101)); ok {
		t.Error("fits where no rectangle is sufficient")
	}
}

func TestF24WidthIsTheQuotaRequest(t *testing.T) {
	s := share.Share{SMRequest: 120, SMLimit: 300, QuotaRequest: 400, QuotaLimit: 800}
	if got := BoxOf(s); got != box(400, 120) {
		t.Errorf("box %v", got)
	}
}

// TestF26Ties checks F26: for equal areas, the shorter left-over side decides, then the lower y, then the lower x.
func TestF26Ties(t *testing.T) {
	wide, tall := rect(0, 500, 800, 200), rect(0, 0, 400, 400)
	for name, c := range map[string]struct {
		list freeList
		want Rect
	}{
		"shorter left-over side": {freeList{tall, wide}, wide},
		"lower y":                {freeList{rect(0, 300, 400, 400), rect(600, 200, 400, 400)}, rect(600, 200, 400, 400)},
		"lower x":                {freeList{rect(600, 0, 400, 400), rect(100, 0, 400, 400)}, rect(100, 0, 400, 400)},
	} {
		t.Run(name, func(t *testing.T) {
			if got, ok := c.list.bestFor(box(300, 200)); !ok || got != c.want {
				t.Errorf("%v, want %v", got, c.want)
			}
		})
	}
}

// TestF31AreaIsNotEnough checks F31: the area is 72 %, but no two boxes fit above each other, and three do not fit side by
// side.
func TestF31AreaIsNotEnough(t *testing.T) {
	three := []Box{box(400, 600), box(400, 600), box(400, 600)}
	if _, ok := Arrange(three); ok {
		t.Error("three of (60 SM, 40 q) fit one slice")
	}
	if !isProvenTooLarge(three) {
		t.Error("the bound does not see it")
	}
	if _, ok := Arrange(three[:2]); !ok {
		t.Error("two do not fit")
	}
}
