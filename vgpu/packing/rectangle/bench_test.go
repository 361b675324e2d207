package rectangle

import (
	"math/rand/v2"
	"testing"
)

// BenchmarkArrange packs sets that fill the slice ("full"), sets that leave some room ("usual"), and sets that cannot be
// packed although no bound rules them out ("hopeless"), which cost the whole budget.
func BenchmarkArrange(b *testing.B) {
	for name, boxes := range map[string][]Box{
		"8-paper":     paperPods(),
		"8-usual":     repeat(8, box(250, 300), box(200, 400)),
		"16-usual":    repeat(16, box(250, 200), box(200, 250)),
		"8-full":      cut(rand.New(rand.NewPCG(1, 9)), 8, 10),
		"16-full":     cut(rand.New(rand.NewPCG(1, 9)), 16, 10),
		"8-hopeless":  repeat(8, box(340, 360), box(350, 355)),
		"16-hopeless": repeat(16, box(260, 240), box(255, 235), box(245, 250)),
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			ok := false
			for b.Loop() {
				_, ok = Arrange(boxes)
			}
			b.ReportMetric(map[bool]float64{true: 1}[ok], "packed")
		})
	}
}

func paperPods() []Box {
	var boxes []Box
	for _, pod := range "RNBRNBRR" {
		boxes = append(boxes, pods[pod])
	}
	return boxes
}

func repeat(n int, of ...Box) []Box {
	var boxes []Box
	for i := range n {
		boxes = append(boxes, of[i%len(of)])
	}
	return boxes
}

// BenchmarkPlace replaces one of the boxes on a nearly full slice: a release and a place.
func BenchmarkPlace(b *testing.B) {
	l := NewList()
	for id, box := range repeat(14, box(250, 200), box(200, 250)) {
		l.Place(id, box)
	}
	ids := l.Placed()
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		p := ids[i%len(ids)]
		l.Release(p.ID)
		l.Place(p.ID, p.Box)
	}
}

func BenchmarkListOf(b *testing.B) {
	rects, ok := Arrange(repeat(14, box(250, 200), box(200, 250)))
	if !ok {
		b.Fatal("not arranged")
	}
	b.ReportAllocs()
	for b.Loop() {
		ListOf(rects).Fit(box(100, 100))
	}
}
