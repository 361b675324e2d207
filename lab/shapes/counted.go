package shapes

import (
	"slices"

	"github.com/gshare-dev/gshare/vgpu/packing/rectangle"
	"github.com/gshare-dev/gshare/vgpu/packing/slot"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// setGPU is a GPU on which pods have no position: whether one more pod fits depends only on the set of pods. Its waste is what the pods
// leave unused, valued by price first and by SM-time second, so the fleet packs by best fit.
type setGPU struct {
	fitTest
	ids     []int
	pods    []Pod // in the order of the ids
	area    share.Area
	refused []Pod // pods refused since the set last changed
}

// fitTest decides which sets of pods fit one GPU, and how much of the GPU a pod uses.
type fitTest struct {
	admits func([]Pod) bool
	// implies reports whether a set that has no room for the pod refused has none for the pod asked either.
	implies func(refused, asked Pod) bool
	// worth is how much of a GPU the pod takes.
	worth func(Pod) share.Area
}

func newCounted(m fitTest) func() gpuState { return func() gpuState { return &setGPU{fitTest: m} } }

func (c *setGPU) offer(p Pod, than waste) (waste, bool) {
	if c.area+p.Area() > share.WholeArea || c.hasRefused(p) {
		return maxWaste, false
	}
	left := share.WholeArea
	for _, q := range c.pods {
		left -= c.worth(q)
	}
	w := waste{int64(left), int64(share.WholeArea - c.area)}
	return w, w.less(than) && c.fits(p)
}

func (c *setGPU) hasRefused(p Pod) bool {
	return slices.ContainsFunc(c.refused, func(r Pod) bool { return c.implies(r, p) })
}

// fits reports whether the pod fits together with the pods on the GPU. It caches a refusal.
func (c *setGPU) fits(p Pod) bool {
	c.pods = append(c.pods, p)
	fits := c.admits(c.pods)
	c.pods = c.pods[:len(c.pods)-1]
	if !fits {
		c.refused = append(c.refused, p)
	}
	return fits
}

func (c *setGPU) place(id int, p Pod) {
	c.ids, c.pods = append(c.ids, id), append(c.pods, p)
	c.area += p.Area()
	c.refused = c.refused[:0]
}

func (c *setGPU) remove(id int) {
	k := slices.Index(c.ids, id)
	c.area -= c.pods[k].Area()
	c.ids, c.pods = slices.Delete(c.ids, k, k+1), slices.Delete(c.pods, k, k+1)
	c.refused = c.refused[:0]
}

// slotTest returns the test of whether pods fit a GPU by gshare's slot model, the configuration LP. All GPUs of a fleet share one
// solver.
func slotTest(reserve share.PerMille) fitTest {
	solver := slot.NewSolver()
	var items []slot.Item
	return fitTest{worth: Pod.Area, implies: isAtLeast, admits: func(pods []Pod) bool {
		items = items[:0]
		for _, p := range pods {
			items = append(items, p.item())
		}
		return solver.Fits(items, reserve)
	}}
}

// isAtLeast reports whether q requests no less than p. Pods of full quota are compared only with each other, because they need no reserve.
func isAtLeast(p, q Pod) bool {
	return q.SM >= p.SM && q.Quota >= p.Quota && (q.Quota == share.Whole) == (p.Quota == share.Whole)
}

// rectangleTest returns the test of whether the pods can be packed as rectangles from scratch (F27). Its heuristic may place a larger
// pod where it fails to place a smaller one, so a refusal implies nothing about other pods.
func rectangleTest(reserve share.PerMille) fitTest {
	same := func(p, q Pod) bool { return p.SM == q.SM && p.Quota == q.Quota }
	return fitTest{worth: Pod.Area, implies: same, admits: func(pods []Pod) bool {
		_, ok := rectangle.Arrange(boxesOf(pods, reserve))
		return ok
	}}
}

// stretchedBox returns the rectangle of a pod on a GPU with a reserve: its width is the quota divided by the part of the window that is
// not reserved, and at most 1. Boxes beside each other then leave the reserve free. Boxes of full quota need no reserve. Nor does a single
// configuration, whose boxes lie above each other and fit at any width.
func stretchedBox(p Pod, reserve share.PerMille) rectangle.Box {
	left := share.Whole - reserve
	return rectangle.Box{W: min(share.Whole, (p.Quota*share.Whole+left-1)/left), H: p.SM}
}
