package packing

import (
	"cmp"
	"slices"

	"github.com/gshare-dev/gshare/vgpu/packing/slot"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// SliceID is the UUID of a GPU or of a MIG instance, or the name of a MIG instance that can be created on demand.
type SliceID string

// Slice describes a whole GPU or one MIG instance of a node's inventory: what can be requested of it and how its shares can be isolated.
type Slice struct {
	ID           SliceID
	Device       string // UUID of the physical GPU
	Model        string // of the device, such as "A100"
	Profile      string // MIG profile; empty for a whole GPU
	MemorySlices uint8  // the memory slices of the device, one bit each, that a MIG instance created on demand takes; 0: the slice always exists
	SMs          int
	Memory       share.Bytes
	Classes      []share.Isolation // what the node can enforce here
	Healthy      bool
	Reserve      share.PerMille // part of the window kept back for switching between sets
	MaxShares    int
	Gamma        int64    // γ: bound on Σ SMLimit x QuotaLimit, in per mille of the slice; 0 is DefaultGamma
	MixTenants   bool     // lets pods of different namespaces share the slice
	Locality     Locality // where the GPU is in its node; for whole GPUs only
	Store        bool     // whether shares here can use weights of the node's model store
	Swap         SwapSpace
}

// SwapSpace bounds the memory of shares of class swap, which hold the memory of their slice in turn: what they may have outside the slice,
// and what they keep on it while they wait.
type SwapSpace struct {
	Host share.Bytes // host memory for what they give back between turns, beyond the memory of the slice
	Kept share.Bytes // the most memory of the slice that each share keeps while another has its turn
}

func (s Slice) equals(o Slice) bool {
	return s.ID == o.ID && s.Device == o.Device && s.MemorySlices == o.MemorySlices && s.SMs == o.SMs && s.equalsExceptID(&o)
}

// gammaArea returns γ as an area (SMs x quota).
func (s *Slice) gammaArea() share.Area {
	return share.Area(cmp.Or(s.Gamma, DefaultGamma) * int64(share.WholeArea) / 1000)
}

// checkTerms returns which of the pod's terms the slice does not meet (kind of slice, GPU model, health), or Admitted.
func (s *Slice) checkTerms(t share.Terms) Refusal {
	switch {
	case !s.MatchesKind(t.Slice):
		return WrongKind
	case len(t.Models) > 0 && !slices.Contains(t.Models, s.Model):
		return WrongModel
	case !s.Healthy:
		return Unhealthy
	}
	return Admitted
}

// MatchesKind reports whether the slice is of the requested kind: a whole GPU (the default), any MIG instance, or the name of a MIG
// profile.
func (s *Slice) MatchesKind(kind string) bool {
	switch kind {
	case share.WholeGPU, "":
		return s.Profile == ""
	case share.AnyMIG:
		return s.Profile != ""
	}
	return s.Profile == kind
}

// classFor returns the best isolation class for the share that the slice can enforce. If the slice can enforce none that serves the share,
// it returns the best class anyway, and whether the pod accepts that: whether it asks for best-effort enforcement.
func (s *Slice) classFor(sh share.Share, t share.Terms) (share.Isolation, bool) {
	wanted := acceptableClasses(sh, t.Isolation)
	for _, class := range wanted {
		if slices.Contains(s.Classes, class) {
			return class, true
		}
	}
	// Best-effort enforcement runs regardless; the node's enforcement status says what is missing.
	return wanted[0], t.Enforcement == share.BestEffortEnforcement
}

// The results of acceptableClasses, which are never modified.
var (
	elasticOnly    = []share.Isolation{share.Elastic}
	mpsOnly        = []share.Isolation{share.MPS}
	exclusiveOrMPS = []share.Isolation{share.Exclusive, share.MPS}
)

// acceptableClasses returns the isolation classes that can serve a share, best first. Only pods that ask for class swap get it.
func acceptableClasses(sh share.Share, wanted share.Isolation) []share.Isolation {
	switch {
	case wanted != share.AnyIsolation:
		return []share.Isolation{wanted}
	case sh.SMLimit > sh.SMRequest:
		return elasticOnly
	case sh.IsWhole():
		return exclusiveOrMPS
	}
	return mpsOnly
}

// MilliGPU is a thousandth of the SM-time of one slice. It is rounded, so it serves for ranking nodes only and not for admission.
type MilliGPU int64

// WholeGPU is the SM-time of one whole slice.
const WholeGPU MilliGPU = 1000

// Resident is one share that runs on a slice, with the properties that further shares must be compatible with. A share that requests no
// SM-time, because its instance runs in what others leave idle (residency.Shared), still occupies its memory, counts towards MaxShares and
// keeps these properties.
type Resident struct {
	Tenant string // namespace of the pod
	Model  Model
	Class  share.Isolation
	Share  share.Share // as it counts on the slice
	Use    Use         // what is known about its load; only rankers read it

	Weights []share.Weights // that it uses in addition to its memory; one copy serves all shares of the tenant

	AntiAffinity string // key that no other share of the tenant on the device may have; empty: any may be there
}

func (r Resident) equals(o Resident) bool {
	return r.Tenant == o.Tenant && r.Model == o.Model && r.Class == o.Class && r.Share == o.Share && r.Use == o.Use &&
		slices.Equal(r.Weights, o.Weights) && r.AntiAffinity == o.AntiAffinity
}

// Load is the set of shares on one slice and their sums. The zero value is the load of an empty slice.
type Load struct {
	residents []Resident
	items     []slot.Item // of the shares that request SM-time
	weights   []heldWeights
	memory    share.Bytes
	requested share.Area
	limits    share.Area
}

// Residents returns the shares in the order in which they were added. The caller must not modify the list.
func (l *Load) Residents() []Resident { return l.residents }

// Empty reports whether the slice holds no share.
func (l *Load) Empty() bool { return len(l.residents) == 0 }

// Memory returns the device memory of all shares and of the weights that they use, where weights count once for each tenant. For shares of
// class swap, which hold the memory in turn, the sum may be more than the slice has.
func (l *Load) Memory() share.Bytes { return l.memory }

// Requested returns the sum of the SM-time (SM request x quota request) of the shares. Shares of class swap, which take turns, count as 0.
func (l *Load) Requested() share.Area { return l.requested }

// Add adds a share without checking whether it fits.
func (l *Load) Add(r Resident) {
	l.residents = append(l.residents, r)
	l.memory += r.Share.Memory
	if r.Class == share.Swap {
		return
	}
	if requestsSMTime(r.Share) {
		l.items = append(l.items, itemOf(r.Share))
	}
	l.requested += r.Share.RequestArea()
	l.limits += r.Share.LimitArea()
	l.addWeights(r.Tenant, r.Weights)
}

// clone returns a copy. Adding shares to it does not change the original.
func (l *Load) clone() Load {
	c := *l
	c.residents = slices.Clip(l.residents)
	c.items = slices.Clip(l.items)
	c.weights = slices.Clip(l.weights)
	return c
}

// freeSMTime returns the SM-time of the slice that no share has requested, rounded down. It is 0 for a slice of class swap, which only
// further shares of that class can join.
func (l *Load) freeSMTime() MilliGPU {
	if l.swaps() {
		return 0
	}
	return max(0, WholeGPU-milliGPUOf(l.requested))
}

// swaps reports whether the slice is of class swap.
func (l *Load) swaps() bool { return len(l.residents) > 0 && l.residents[0].Class == share.Swap }

// milliGPUOf converts an area (SMs x quota) to thousandths of a slice, rounded up.
func milliGPUOf(a share.Area) MilliGPU {
	return MilliGPU((a + share.Area(share.Whole) - 1) / share.Area(share.Whole))
}

// requestsSMTime reports whether the share needs turns or a rectangle. A share that requests no SM-time runs in what others leave idle.
func requestsSMTime(s share.Share) bool { return s.SMRequest != 0 || s.QuotaRequest != 0 }

// itemOf returns the request of a share as the slot package's item.
func itemOf(s share.Share) slot.Item { return slot.Item{SM: s.SMRequest, Quota: s.QuotaRequest} }
