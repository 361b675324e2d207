package slot

import (
	"testing"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// fleet fills slices online: each item goes to the fullest slice that admits it, else to a new one. This is the method of
// docs/packing.md, and the load of BenchmarkFits.
type fleet struct {
	fits   func([]Item, share.PerMille) bool
	slices []openSlice
	tests  int
}

type openSlice struct {
	items []Item
	area  int
}

func (f *fleet) add(i Item, reserve share.PerMille) {
	best := -1
	need := int(i.SM) * int(i.Quota)
	for k := range f.slices {
		s := &f.slices[k]
		if s.area+need > int(share.WholeArea) || best >= 0 && s.area <= f.slices[best].area {
			continue
		}
		f.tests++
		if f.fits(append(s.items, i), reserve) {
			best = k
		}
	}
	if best < 0 {
		best = len(f.slices)
		f.slices = append(f.slices, openSlice{items: make([]Item, 0, 128)})
	}
	s := &f.slices[best]
	s.items, s.area = append(s.items, i), s.area+need
}

func (f *fleet) fill(items []Item, reserve share.PerMille) {
	f.slices, f.tests = f.slices[:0], 0
	for _, i := range items {
		f.add(i, reserve)
	}
}

// 1,000 shares of the families of docs/packing.md need no more slices than reported there, when the area that was drawn is set
// against the expected one. The margin is for the draw.
func TestFleetNeedsNoMoreSlicesThanReported(t *testing.T) {
	cases := map[string]struct{ slices, area float64 }{
		"papermix":  {137.7, 135},
		"smallgrid": {84.5, 81},
		"uniform":   {184.3, 170.625},
		"overhalf":  {96.5, 94.5},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			f, slices, area := fleet{fits: NewSolver().Fits}, 0, 0
			for seed := range uint64(3) {
				f.fill(draw(families[name], seeded(seed), 1000), 0)
				slices += len(f.slices)
				area += f.area()
			}
			got, want := float64(slices)*float64(share.WholeArea)/float64(area), c.slices/c.area
			t.Logf("%.3f slices for a slice's area, reported %.3f", got, want)
			if got > 1.01*want {
				t.Errorf("%.3f slices for a slice's area, docs/packing.md reports %.3f", got, want)
			}
		})
	}
}

func (f *fleet) area() int {
	sum := 0
	for _, s := range f.slices {
		sum += s.area
	}
	return sum
}
