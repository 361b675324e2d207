// Package packing decides which shares fit together on a slice, which slices of a node serve a pod, and which node is the best one for it.
// Admission is exact, and every preference is an explicit cost; the package reads no clock and does no I/O.
//
// Its files belong to four parts, which prefix their names: admission (Rules: whether a slice can take a share), search (Packer: which
// slices of a node a pod gets), cost (Ranker: what a placement costs the pods still to come) and index (Fleet: the best of many nodes, from
// cached ranks).
package packing

import (
	"github.com/gshare-dev/gshare/vgpu/packing/rectangle"
	"github.com/gshare-dev/gshare/vgpu/packing/slot"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// Model is the packing model of a slice: the rule that decides whether the requests of a set of shares fit together on it. A slice keeps
// its model until it is empty.
type Model string

// Slots adds up SMs and divides the time of a window between shares; it is exact (docs/packing.md). Rectangles packs boxes of quota x SMs,
// as FaST-GShare does, and also requires a slot table, because slot tables are what nodes execute.
const (
	Slots      Model = "slots"
	Rectangles Model = "rectangles"
)

// DefaultGamma is the default of γ, the bound on the sum of SM limit x quota limit over a slice, in per mille of the slice. Dilu uses 1.5.
const DefaultGamma = 1500

// Rules decide whether a set of shares may run on one slice together. What administrators set for a node, such as γ, is part of its slices.
// Rules are safe for concurrent use.
type Rules struct {
	Model  Model
	solver *slot.Solver
}

// NewRules returns the rules of a packing model.
func NewRules(m Model) Rules {
	return Rules{Model: m, solver: slot.NewSolver()}
}

// ShareRequest is one share to be admitted, with the namespace of its pod and the pod's terms: the accepted models, slices, isolation and
// enforcement, the weights that it uses, and its anti-affinity.
type ShareRequest struct {
	Tenant string
	Terms  share.Terms
	Share  share.Share
}

// Admit returns the isolation class under which slice s, which holds the shares of l, can also take the requested share; or the reason for
// refusing it.
//
// The sums of memory and of limits must fit the slice, where weights count once for all shares of a namespace; whether the requests fit is
// for the packing model to decide. The result depends on the set of shares only, never on the order in which they were added. Admit does
// not look at the other slices of the device; AdmitOn does.
func (r Rules) Admit(s *Slice, l *Load, a ShareRequest) (share.Isolation, Refusal) {
	class, refusal := r.admitEmpty(s, a)
	if refusal != Admitted {
		return "", refusal
	}
	return class, r.admitBeside(s, l, a, class)
}

// AdmitOn is Admit for slice i of the node. It also checks what depends on the other slices of the device: whether the MIG instance can be
// created, and whether a share there repels the requested one.
func (r Rules) AdmitOn(n *Node, i int, a ShareRequest) (share.Isolation, Refusal) {
	class, refusal := r.Admit(&n.Slices[i], &n.Loads[i], a)
	if refusal == Admitted {
		refusal = n.checkDevice(i, a)
	}
	return class, refusal
}

// admitEmpty returns the isolation class under which the slice would take the share if it were empty, or a refusal that holds regardless of
// what runs on the slice.
func (r Rules) admitEmpty(s *Slice, a ShareRequest) (share.Isolation, Refusal) {
	if refusal := s.checkTerms(a.Terms); refusal != Admitted {
		return "", refusal
	}
	class, enforceable := s.classFor(a.Share, a.Terms)
	switch {
	case !enforceable:
		return "", NotEnforceable
	case len(a.Terms.Weights) > 0 && !s.Store:
		return "", NoStore
	case a.Share.Memory+share.MemoryOf(a.Terms.Weights) > s.Memory, a.Share.LimitArea() > s.gammaArea():
		return "", TooLarge
	}
	return class, Admitted
}

// checkNeighbours returns why the share may not run beside the shares on the slice (class, packing model, tenant or their number), or
// Admitted. Of several reasons it returns the first in the order of the Refusal constants.
func (r Rules) checkNeighbours(s *Slice, l *Load, a ShareRequest, class share.Isolation) Refusal {
	if l.Empty() {
		return Admitted
	}
	reason := Admitted
	for i := range l.residents {
		if conflict := r.conflict(s, &l.residents[i], a, class); conflict != Admitted && (reason == Admitted || conflict < reason) {
			reason = conflict
		}
	}
	if reason == Admitted && len(l.residents) >= s.MaxShares {
		return SliceFull
	}
	return reason
}

// conflict returns why the share may not run beside one given resident (a share on the slice), or Admitted.
func (r Rules) conflict(s *Slice, n *Resident, a ShareRequest, class share.Isolation) Refusal {
	switch {
	case n.Class != class, class == share.Exclusive:
		return OtherClass
	case n.Model != r.Model:
		return OtherPackingModel
	case n.Tenant != a.Tenant && (!s.MixTenants || class == share.Swap): // a share of another tenant could keep the turn for ever
		return OtherTenant
	}
	return Admitted
}

// checkCapacity returns why the memory, the limits or the requests of the share do not fit with those of the shares on the slice, or Admitted.
func (r Rules) checkCapacity(s *Slice, l *Load, a ShareRequest) Refusal {
	sh := a.Share
	switch {
	case a.Terms.Isolation == share.Swap:
		return s.checkTurns(l, sh)
	case l.memory+sh.Memory+l.MissingWeights(a.Tenant, a.Terms.Weights) > s.Memory:
		return NoMemory
	case l.limits+sh.LimitArea() > s.gammaArea():
		return OverLimits
	case l.requested+sh.RequestArea() > share.WholeArea, !r.schedulable(s, l, sh):
		return NoSMTime
	}
	return Admitted
}

// schedulable reports whether some slot table serves the requests of all shares on the slice and of one more. Nodes execute slot tables
// under either packing model, so requests that fit as rectangles must have a slot table too, and that table needs the slice's reserve.
func (r Rules) schedulable(s *Slice, l *Load, sh share.Share) bool {
	var scratch [64]slot.Item
	items := append(scratch[:0], l.items...)
	if requestsSMTime(sh) {
		items = append(items, itemOf(sh))
	}
	if !r.solver.Fits(items, s.Reserve) {
		return false
	}
	if r.Model == Slots {
		return true
	}
	_, ok := rectangle.Arrange(boxes(items))
	return ok
}

// boxes returns the requests of shares as rectangles.
func boxes(items []slot.Item) []rectangle.Box {
	out := make([]rectangle.Box, len(items))
	for i, x := range items {
		out[i] = rectangle.Box{W: x.Quota, H: x.SM}
	}
	return out
}

// Refusal is the reason why a share was not admitted. The constants are in the order of the checks, so the largest refusal over the slices
// of a node is the most informative one.
type Refusal int

// The refusals in the order of the checks. Those from NoSlices to TooFewDevices hold on an empty node too.
const (
	Admitted Refusal = iota
	NoSlices
	WrongKind
	WrongModel
	Unhealthy
	NotEnforceable
	NoStore
	TooLarge
	TooFewDevices
	OtherClass
	OtherPackingModel
	OtherTenant
	SliceFull
	NoMemory
	OverLimits
	NoSMTime
	Repelled
	NoJointPlacement
)

// NeverFits reports whether the refusal is independent of what runs on the node, so that evicting pods does not help.
func (r Refusal) NeverFits() bool { return r >= NoSlices && r <= TooFewDevices }

// refusalText holds the text of every refusal as scheduling events show it.
var refusalText = [...]string{
	Admitted:          "admitted",
	NoSlices:          "no gshare GPUs",
	WrongKind:         "no slice of the requested kind",
	WrongModel:        "no GPU of an accepted model",
	Unhealthy:         "matching GPUs are unhealthy",
	NotEnforceable:    "isolation class cannot be enforced",
	NoStore:           "no model store for weights",
	TooLarge:          "share larger than a slice",
	TooFewDevices:     "fewer GPUs than requested vGPUs",
	OtherClass:        "GPUs serve another isolation class",
	OtherPackingModel: "GPUs are packed by another model",
	OtherTenant:       "GPUs are shared by another namespace",
	SliceFull:         "GPUs hold their maximum number of shares",
	NoMemory:          "insufficient GPU memory",
	OverLimits:        "limits would exceed the oversubscription bound",
	NoSMTime:          "insufficient GPU SM-time",
	Repelled:          "GPUs hold a share with the same anti-affinity",
	NoJointPlacement:  "containers of the pod do not fit together",
}

// String returns the reason as text for a scheduling event. It names neither pod nor slice, so that kube-scheduler can count nodes with
// equal reasons.
func (r Refusal) String() string { return refusalText[r] }
