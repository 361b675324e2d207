package shapes

import (
	"slices"

	"github.com/gshare-dev/gshare/vgpu/packing/rectangle"
	"github.com/gshare-dev/gshare/vgpu/packing/slot"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// counted is a GPU on which pods have no position: whether one more fits depends on the set of pods only. Its waste is what the
// pods leave of it, first by price and then by area, so the fleet packs by best fit.
type counted struct {
	model
	ids     []int
	pods    []Pod // of the ids
	area    share.Area
	refused []Pod // since the set last changed
}

// model decides which sets of pods fit one GPU.
type model struct {
	admits func([]Pod) bool
	// implies reports whether a set without space for one pod has none for the other either.
	implies func(refused, asked Pod) bool
	// worth is how much of a GPU the pod takes.
	worth func(Pod) share.Area
}

func newCounted(m model) func() board { return func() board { return &counted{model: m} } }

func (c *counted) offer(p Pod, than waste) (waste, bool) {
	if c.area+p.Area() > share.WholeArea || c.hasRefused(p) {
		return most, false
	}
	left := share.WholeArea
	for _, q := range c.pods {
		left -= c.worth(q)
	}
	w := waste{int64(left), int64(share.WholeArea - c.area)}
	return w, w.less(than) && c.fits(p)
}

func (c *counted) hasRefused(p Pod) bool {
	return slices.ContainsFunc(c.refused, func(r Pod) bool { return c.implies(r, p) })
}

// fits reports whether the pod fits beside the set, and caches a refusal.
func (c *counted) fits(p Pod) bool {
	c.pods = append(c.pods, p)
	fits := c.admits(c.pods)
	c.pods = c.pods[:len(c.pods)-1]
	if !fits {
		c.refused = append(c.refused, p)
	}
	return fits
}

func (c *counted) place(id int, p Pod) {
	c.ids, c.pods = append(c.ids, id), append(c.pods, p)
	c.area += p.Area()
	c.refused = c.refused[:0]
}

func (c *counted) remove(id int) {
	k := slices.Index(c.ids, id)
	c.area -= c.pods[k].Area()
	c.ids, c.pods = slices.Delete(c.ids, k, k+1), slices.Delete(c.pods, k, k+1)
	c.refused = c.refused[:0]
}

// turns admits what the configuration LP admits: gshare's own model. All GPUs of a fleet share one solver.
func turns(reserve share.PerMille) model {
	solver := slot.NewSolver()
	var items []slot.Item
	return model{worth: Pod.Area, implies: covers, admits: func(pods []Pod) bool {
		items = items[:0]
		for _, p := range pods {
			items = append(items, p.item())
		}
		return solver.Fits(items, reserve)
	}}
}

// covers reports whether q requests no less than p. Full quota is another kind, as it needs no reserve.
func covers(p, q Pod) bool {
	return q.SM >= p.SM && q.Quota >= p.Quota && (q.Quota == share.Whole) == (p.Quota == share.Whole)
}

// layout admits what can be packed as rectangles from scratch (F27). Its heuristic may place a larger pod where it fails for a
// smaller one, so a refusal implies nothing about other pods.
func layout(reserve share.PerMille) model {
	same := func(p, q Pod) bool { return p.SM == q.SM && p.Quota == q.Quota }
	return model{worth: Pod.Area, implies: same, admits: func(pods []Pod) bool {
		boxes := make([]rectangle.Box, len(pods))
		for k, p := range pods {
			boxes[k] = stretched(p, reserve)
		}
		_, ok := rectangle.Arrange(boxes)
		return ok
	}}
}
