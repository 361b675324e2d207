package slot

import (
	"maps"
	"math/rand/v2"
	"slices"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// family draws the items of one kind of fleet; docs/packing.md defines the kinds.
type family func(*rand.Rand) Item

var families = map[string]family{
	"papermix": func(r *rand.Rand) Item {
		switch r.IntN(4) {
		case 0, 1:
			return percent(12, pick(r, 20, 40, 60, 80))
		case 2:
			return percent(24, pick(r, 20, 40, 60, 80))
		}
		return percent(50, pick(r, 40, 60, 80))
	},
	"fastgrid": func(r *rand.Rand) Item {
		return percent(pick(r, 6, 12, 24, 50, 60, 80, 100), pick(r, 20, 40, 60, 80, 100))
	},
	"smallgrid": func(r *rand.Rand) Item {
		return percent(pick(r, 6, 12, 12, 24), pick(r, 20, 40, 60, 80, 100))
	},
	"uniform":  func(r *rand.Rand) Item { return percent(between(r, 5, 60), between(r, 5, 100)) },
	"overhalf": func(r *rand.Rand) Item { return percent(between(r, 5, 25), between(r, 51, 75)) },
	// permille is not one of the paper's: odd SMs and quotas, so that a cell is one per mille.
	"permille": func(r *rand.Rand) Item {
		return Item{share.PerMille(between(r, 20, 600)), share.PerMille(between(r, 20, 1000))}
	},
	// slivers gives many small items on a slice, far more than the paper's.
	"slivers": func(r *rand.Rand) Item { return percent(between(r, 2, 9), between(r, 5, 60)) },
}

func familyNames() []string { return slices.Sorted(maps.Keys(families)) }

func percent(sm, quota int) Item {
	return Item{share.PerMille(10 * sm), share.PerMille(10 * quota)}
}

func pick(r *rand.Rand, from ...int) int { return from[r.IntN(len(from))] }

func between(r *rand.Rand, low, high int) int { return low + r.IntN(high-low+1) }

func seeded(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 1)) }

// draw takes n items from a family.
func draw(f family, r *rand.Rand, n int) []Item {
	items := make([]Item, n)
	for k := range items {
		items[k] = f(r)
	}
	return items
}

// crowd draws items until their area passes the given part of a slice, so that the question whether they fit is open.
func crowd(f family, r *rand.Rand, part float64) []Item {
	var items []Item
	for area := 0; float64(area) < part*float64(share.WholeArea); {
		i := f(r)
		items = append(items, i)
		area += int(i.SM) * int(i.Quota)
	}
	return items
}

func shuffled(items []Item, r *rand.Rand) []Item {
	s := slices.Clone(items)
	r.Shuffle(len(s), func(a, b int) { s[a], s[b] = s[b], s[a] })
	return s
}
