package rectangle

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

func tenths(rng *rand.Rand, most int) Box { return box(100*(1+rng.IntN(most)), 100*(1+rng.IntN(most))) }

// checkFree compares the list with brute force: disjoint from what is placed, and every maximal rectangle on it.
func checkFree(t *testing.T, l *List) {
	t.Helper()
	want := maximalFree(l.Placed())
	for _, r := range l.Free() {
		if meetsAny(r, l.Placed()) {
			t.Fatalf("free %v meets one of %v", r, l.Placed())
		}
		if !want[r] {
			t.Fatalf("free %v is not maximal beside %v", r, l.Placed())
		}
		delete(want, r)
	}
	if len(want) > 0 {
		t.Fatalf("maximal %v missing beside %v", want, l.Placed())
	}
}

// TestFreeListAgainstBruteForce checks invariant 4 of the specification: after placing, and after releases by ListOf and
// Restructure.
func TestFreeListAgainstBruteForce(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 4))
	for range 20 {
		l := NewList()
		for id := range 10 {
			l.Place(id, tenths(rng, 6))
			checkFree(t, l)
		}
		for _, p := range l.Placed() {
			l.Release(p.ID)
			checkFree(t, ListOf(rectsOf(l)))
			if c, ok := l.packAgain(); ok {
				checkFree(t, c)
			}
		}
	}
}

func rectsOf(l *List) []Rect {
	var rects []Rect
	for _, p := range l.Placed() {
		rects = append(rects, p.Rect)
	}
	return rects
}

// TestKeptListNeverOffersWhatIsPlaced: keeping the list loses maximality (F29) but never safety, and the list stays bounded
// wherever it can be rebuilt.
func TestKeptListNeverOffersWhatIsPlaced(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 4))
	l := NewList()
	for id := range 5000 {
		l.Place(id, tenths(rng, 5))
		if p := l.Placed(); rng.IntN(3) > 0 || len(p) > 6 {
			l.Release(p[rng.IntN(len(p))].ID)
			if len(l.free) > 3*len(l.placed)+4 && l.Restructure() {
				t.Fatal("the list outgrew the threshold and could have been rebuilt")
			}
		}
		for i, r := range l.Free() {
			if meetsAny(r, l.Placed()) {
				t.Fatalf("free %v meets one of %v", r, l.Placed())
			}
			if insideAnother(r, l.Free()) || slices.Contains(l.Free()[:i], r) {
				t.Fatalf("free %v is redundant in %v", r, l.Free())
			}
		}
		checkPacking(t, boxesOf(l), rectsOf(l))
	}
}

func boxesOf(l *List) []Box {
	var boxes []Box
	for _, p := range l.Placed() {
		boxes = append(boxes, p.Box)
	}
	return boxes
}

// TestRemovalInAnyOrderGivesTheWholeBack checks invariant 5.
func TestRemovalInAnyOrderGivesTheWholeBack(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 200 {
		l := NewList()
		for id := range 12 {
			l.Place(id, box(1+rng.IntN(500), 1+rng.IntN(500)))
		}
		ids := l.Placed()
		rng.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
		for _, p := range ids {
			l.Release(p.ID)
		}
		if !l.Restructure() || !slices.Equal(l.Free(), []Rect{wholeSlice}) {
			t.Fatalf("left over: %v", l.Free())
		}
	}
}

// TestReleasedRectangleIsReused checks FaST-GShare's "keep": the next pod of the same function gets the same rectangle.
func TestReleasedRectangleIsReused(t *testing.T) {
	l := NewList()
	for id := range 3 {
		l.Place(id, pods['N'])
	}
	was := l.Placed()[1].Rect
	l.Release(1)
	if got, ok := l.Place(7, pods['N']); !ok || got != was {
		t.Errorf("placed at %v, want %v", got, was)
	}
}

func TestRefusals(t *testing.T) {
	l := NewList()
	for _, b := range []Box{{}, box(0, 5), box(5, 0), box(-1, 5), box(1001, 1), box(1, 1<<31-1)} {
		t.Run(fmt.Sprint(b), func(t *testing.T) {
			if _, ok := l.Place(1, b); ok {
				t.Errorf("placed %v", b)
			}
			if _, ok := l.Repack(b); ok {
				t.Errorf("re-packed for %v", b)
			}
		})
	}
	l.Place(1, box(10, 10))
	if _, ok := l.Place(1, box(10, 10)); ok {
		t.Error("placed one id twice")
	}
	l.Release(9)
	if len(l.Placed()) != 1 {
		t.Error("releasing an unknown id changed the list")
	}
}

// TestRepackLeavesRoom: the list that Repack returns holds the same shares and has room for the box, and the original list
// is unchanged.
func TestRepackLeavesRoom(t *testing.T) {
	l := ListOf([]Rect{rect(0, 0, 150, 100), rect(300, 0, 100, 500), rect(900, 0, 50, 50)})
	before, b := l.Placed(), box(850, 1000)
	if _, ok := l.Fit(b); ok {
		t.Fatal("fits without re-packing; this test shows nothing")
	}
	packed, ok := l.Repack(b)
	if !ok || !slices.Equal(l.Placed(), before) {
		t.Fatalf("re-pack %v; was %v, is %v", ok, before, l.Placed())
	}
	if _, ok := packed.Place(5, b); !ok {
		t.Error("no room after re-packing for it")
	}
	checkPacking(t, boxesOf(packed), rectsOf(packed))
}
