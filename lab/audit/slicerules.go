package audit

import (
	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// checkSlice checks the memory, limits and number of shares of a slice, and that its shares are compatible and fit together.
func (c *checker) checkSlice(n *node, s *slice) {
	if len(s.held) == 0 {
		return
	}
	c.checkSums(n, s)
	c.checkNeighbours(n, s)
	c.checkProof(n, s)
}

func (c *checker) checkSums(n *node, s *slice) {
	at := Violation{Node: n.object.Name, Slice: s.ID}
	if s.inTurn() {
		c.checkTurns(n, s)
	} else if memory := s.memoryWith(heldShare{}); memory > s.capacity() {
		at.Kind = Memory
		c.violate(at, "%d MiB are promised, the slice has %d", memory/share.MiB, s.MemoryMiB)
	}
	if bound := c.options.limitBound(); s.limits > bound {
		at.Kind = Limits
		c.violate(at, "the limits add up to an area of %d, the bound is %d", s.limits, bound)
	}
	if len(s.held) > s.MaxShares {
		at.Kind = TooMany
		c.violate(at, "%d shares where %d may be", len(s.held), s.MaxShares)
	}
}

func (c *checker) checkNeighbours(n *node, s *slice) {
	at := Violation{Node: n.object.Name, Slice: s.ID}
	if countDistinct(&s.load, func(h heldShare) string { return h.tenant }) > 1 && (!c.options.MixTenants || s.inTurn()) {
		at.Kind = MixedTenants
		c.violate(at, "pods of several namespaces")
	}
	if countDistinct(&s.load, func(h heldShare) share.Isolation { return h.class }) > 1 {
		at.Kind = MixedClasses
		c.violate(at, "shares of several isolation classes")
	}
	if countDistinct(&s.load, func(h heldShare) kube.FitModel { return h.packing }) > 1 {
		at.Kind = MixedModels
		c.violate(at, "shares of both packing models")
	}
	if len(s.held) > 1 && s.holdsExclusive() {
		at.Kind = NotExclusive
		c.violate(at, "an exclusive share among %d", len(s.held))
	}
}

func (s *slice) holdsExclusive() bool {
	for _, h := range s.held {
		if h.class == share.Exclusive {
			return true
		}
	}
	return false
}

// checkProof checks, by a slot table or, for the packing model of rectangles, by a packing, that the requests on a slice fit together. A slice with shares of
// both packing models already is a violation; its shares must still fit as slots without a reserve, as those of every correct slice do.
func (c *checker) checkProof(n *node, s *slice) {
	kind, err := NoTable, error(nil)
	switch {
	case countDistinct(&s.load, func(h heldShare) kube.FitModel { return h.packing }) > 1:
		err = proveSlots(s.shares(), 0)
	default:
		if err = proveSlots(s.shares(), s.Reserve); err == nil && s.held[0].packing == kube.Rectangles {
			kind, err = NoPacking, proveRectangles(s.shares())
		}
	}
	if err != nil {
		c.violate(Violation{Kind: kind, Node: n.object.Name, Slice: s.ID}, "%v", err)
	}
}
