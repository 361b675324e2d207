package rectangle

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestArrangeFindsAllOnACoarseGrid tries every multiset of up to five boxes on a grid of fifths, and allows no miss.
func TestArrangeFindsAllOnACoarseGrid(t *testing.T) {
	var types []Box
	for w := 1; w <= 5; w++ {
		for h := 1; h <= 5; h++ {
			types = append(types, box(200*w, 200*h))
		}
	}
	depth := 5
	if testing.Short() {
		depth = 4
	}
	var missed, total int
	everyMultiset(nil, types, depth, func(boxes []Box) {
		total++
		if !agrees(t, boxes, 5) {
			missed++
			t.Logf("missed: %v", boxes)
		}
	})
	if missed > 0 {
		t.Errorf("missed %d of %d", missed, total)
	}
}

func everyMultiset(boxes, types []Box, depth int, visit func([]Box)) {
	if len(boxes) > 0 {
		visit(boxes)
	}
	if !isPlausible(boxes) || depth == 0 {
		return
	}
	for i := range types {
		everyMultiset(append(slices.Clip(boxes), types[i]), types[i:], depth-1, visit)
	}
}

// agrees fails the test if the answer is wrong. It returns false if Arrange misses a packing.
func agrees(t *testing.T, boxes []Box, cells int) bool {
	t.Helper()
	rects, ok := Arrange(boxes)
	if ok {
		checkPacking(t, boxes, rects)
		return true
	}
	fits := isPlausible(boxes) && exhaustive(boxes, cells)
	if fits && isProvenTooLarge(boxes) {
		t.Fatalf("the bound refuses %v, which fit", boxes)
	}
	return !fits
}

func TestArrangeFindsAllOnAFinerGrid(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 4))
	for hard := 0; hard < 60; {
		boxes := make([]Box, 2+rng.IntN(5))
		for i := range boxes {
			boxes[i] = box(125*(1+rng.IntN(6)), 125*(1+rng.IntN(6)))
		}
		if !isPlausible(boxes) {
			continue
		}
		if _, ok := packGreedily(boxes, byArea); !ok {
			hard++
		}
		if !agrees(t, boxes, 8) {
			t.Errorf("missed %v", boxes)
		}
	}
}

// TestArrangeFullSlices uses sets that fill the slice to the last percent and are known to fit, which are the hardest.
func TestArrangeFullSlices(t *testing.T) {
	rng := rand.New(rand.NewPCG(6, 4))
	for _, c := range []struct{ boxes, most int }{{6, 0}, {8, 0}, {12, 5}, {16, 25}} {
		t.Run(fmt.Sprint(c.boxes), func(t *testing.T) {
			const sets = 500
			missed := 0
			for range sets {
				boxes := cut(rng, c.boxes, 10)
				rng.Shuffle(len(boxes), func(i, j int) { boxes[i], boxes[j] = boxes[j], boxes[i] })
				rects, ok := Arrange(boxes)
				if !ok {
					missed++
					continue
				}
				checkPacking(t, boxes, rects)
			}
			t.Logf("%d boxes: missed %d of %d", c.boxes, missed, sets)
			if missed > c.most {
				t.Errorf("%d boxes: missed %d of %d, at most %d expected", c.boxes, missed, sets, c.most)
			}
		})
	}
}

// TestArrangePinwheel: no guillotine cut produces this set, so no order of cuts finds it by chance.
func TestArrangePinwheel(t *testing.T) {
	boxes := []Box{box(600, 400), box(400, 600), box(600, 400), box(400, 600), box(200, 200)}
	rects, ok := Arrange(boxes)
	if !ok {
		t.Fatal("not found")
	}
	checkPacking(t, boxes, rects)
}

func TestArrangeIsAFunctionOfTheMultiset(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 4))
	for range 300 {
		boxes := cut(rng, 2+rng.IntN(12), 50)
		if rng.IntN(2) == 0 {
			boxes = append(boxes[:len(boxes)-1], boxes[0]) // some that are equal, some that do not fit
		}
		want, wantOK := Arrange(boxes)
		rng.Shuffle(len(boxes), func(i, j int) { boxes[i], boxes[j] = boxes[j], boxes[i] })
		got, ok := Arrange(boxes)
		if slices.SortFunc(got, compareByPosition); ok != wantOK || !slices.Equal(got, slices.SortedFunc(slices.Values(want), compareByPosition)) {
			t.Fatalf("%v: %v %v, before %v %v", boxes, got, ok, want, wantOK)
		}
	}
}

func TestArrangeRefusals(t *testing.T) {
	for _, boxes := range [][]Box{{{}}, {box(-1, 5)}, {box(1001, 1)}, {box(1, 1<<31-1)}, {wholeSlice.Box, box(1, 1)}} {
		t.Run(fmt.Sprint(boxes), func(t *testing.T) {
			if _, ok := Arrange(boxes); ok {
				t.Errorf("arranged %v", boxes)
			}
		})
	}
	if rects, ok := Arrange(nil); !ok || len(rects) != 0 {
		t.Errorf("nothing: %v %v", rects, ok)
	}
}
