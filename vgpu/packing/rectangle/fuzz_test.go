package rectangle

import (
	"slices"
	"testing"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// FuzzArrange reads a box from every four bytes. What is arranged must be a packing, the same for the reverse list, and
// leave exactly its own area to the next box.
func FuzzArrange(f *testing.F) {
	f.Add([]byte{1, 144, 2, 88, 1, 144, 2, 88, 1, 144, 2, 88})
	f.Add([]byte{2, 88, 1, 244, 2, 88, 1, 244, 1, 144, 0, 240, 1, 144, 0, 240, 1, 144, 0, 120})
	f.Add([]byte{255, 255, 255, 255})
	f.Fuzz(func(t *testing.T, data []byte) {
		boxes := boxesFrom(data)
		rects, ok := Arrange(boxes)
		back := slices.Clone(boxes)
		slices.Reverse(back)
		again, okAgain := Arrange(back)
		if slices.SortFunc(again, compareByPosition); ok != okAgain || !slices.Equal(slices.SortedFunc(slices.Values(rects), compareByPosition), again) {
			t.Fatalf("%v: %v %v, reversed %v %v", boxes, rects, ok, again, okAgain)
		}
		if ok {
			checkPacking(t, boxes, rects)
			checkRoom(t, rects)
		}
	})
}

func boxesFrom(data []byte) []Box {
	var boxes []Box
	for ; len(data) >= 4 && len(boxes) < 20; data = data[4:] {
		w, h := share.PerMille(int16(data[0])<<8|int16(data[1])), share.PerMille(int16(data[2])<<8|int16(data[3]))
		boxes = append(boxes, Box{W: w, H: h})
	}
	return boxes
}

func checkRoom(t *testing.T, rects []Rect) {
	t.Helper()
	l := ListOf(rects)
	for _, r := range l.Free() {
		if meetsAny(r, l.Placed()) || insideAnother(r, l.Free()) {
			t.Fatalf("free %v beside %v", r, rects)
		}
	}
	if (l.FreeArea() > 0) != (len(l.Free()) > 0) {
		t.Fatalf("free area %d, free rectangles %v", l.FreeArea(), l.Free())
	}
}
