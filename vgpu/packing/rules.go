package packing

import (
	"github.com/gshare-dev/gshare/vgpu/packing/rectangle"
	"github.com/gshare-dev/gshare/vgpu/packing/slot"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// DefaultGamma bounds the sum of limits on a slice, in per-mille of the slice (Dilu's γ = 1.5).
const DefaultGamma = 1500

// Rules say what may share a slice. One value serves concurrent callers.
type Rules struct {
	Model      Model
	Gamma      int64 // Σ SMLimit x QuotaLimit of a slice, per mille of the slice
	MixTenants bool  // lets pods of different namespaces share a slice
	solver     *slot.Solver
}

// NewRules gives the rules of one packing model with the default γ and one tenant a slice.
func NewRules(m Model) Rules {
	return Rules{Model: m, Gamma: DefaultGamma, solver: slot.NewSolver()}
}

// Ask is one share that looks for a slice, together with what its pod said.
type Ask struct {
	Tenant string
	Terms  share.Terms
	Share  share.Share
}

// Admit decides whether the slice can take the share on top of its load, and under which isolation class.
//
// Memory, limits and requests must all fit (DESIGN: one feasibility engine for FaST and Dilu); the requests by the exact
// slot model or by rectangles. Admission depends only on the multiset of shares, never on how they came.
func (r Rules) Admit(s *Slice, l *Load, a Ask) (share.Isolation, Refusal) {
	class, refusal := r.static(s, a)
	if refusal != Admitted {
		return "", refusal
	}
	if refusal := r.compatible(s, l, a, class); refusal != Admitted {
		return "", refusal
	}
	return class, r.room(s, l, a.Share)
}

// static checks what no eviction can change.
func (r Rules) static(s *Slice, a Ask) (share.Isolation, Refusal) {
	if refusal := s.offers(a.Terms); refusal != Admitted {
		return "", refusal
	}
	class, enforceable := s.classFor(a.Share, a.Terms)
	switch {
	case !enforceable:
		return "", NotEnforceable
	case a.Share.Memory > s.Memory, int64(a.Share.LimitArea()) > r.gammaArea():
		return "", TooLarge
	}
	return class, Admitted
}

// compatible checks the share against the neighbours: class, model, tenant and number. Of several reasons it gives the first
// in the order of the checks, however the neighbours are ordered.
func (r Rules) compatible(s *Slice, l *Load, a Ask, class share.Isolation) Refusal {
	if l.Empty() {
		return Admitted
	}
	reason := Admitted
	for i := range l.residents {
		if clash := r.clash(&l.residents[i], a, class); clash != Admitted && (reason == Admitted || clash < reason) {
			reason = clash
		}
	}
	if reason == Admitted && len(l.residents) >= s.MaxShares {
		return SliceFull
	}
	return reason
}

// clash says why the share may not run beside the neighbour, if so.
func (r Rules) clash(n *Resident, a Ask, class share.Isolation) Refusal {
	switch {
	case n.Class != class, class == share.Exclusive:
		return OtherClass
	case n.Model != r.Model:
		return OtherPackingModel
	case n.Tenant != a.Tenant && !r.MixTenants:
		return OtherTenant
	}
	return Admitted
}

func (r Rules) room(s *Slice, l *Load, sh share.Share) Refusal {
	switch {
	case l.memory+sh.Memory > s.Memory:
		return NoMemory
	case int64(l.limits+sh.LimitArea()) > r.gammaArea():
		return OverLimits
	case l.requested+sh.RequestArea() > share.WholeArea, !r.fitTogether(s, l, sh):
		return NoRoom
	}
	return Admitted
}

func (r Rules) gammaArea() int64 { return r.Gamma * int64(share.WholeArea) / 1000 }

func (r Rules) fitTogether(s *Slice, l *Load, sh share.Share) bool {
	if r.Model == Rectangles {
		_, ok := rectangle.Arrange(append(boxes(l), boxOf(sh)))
		return ok
	}
	var scratch [64]slot.Item
	items := append(scratch[:0], l.items...)
	return r.solver.Fits(append(items, itemOf(sh)), s.Reserve)
}

func boxOf(s share.Share) rectangle.Box { return rectangle.Box{W: s.QuotaRequest, H: s.SMRequest} }

func boxes(l *Load) []rectangle.Box {
	out := make([]rectangle.Box, 0, len(l.residents)+1)
	for i := range l.residents {
		out = append(out, boxOf(l.residents[i].Share))
	}
	return out
}
