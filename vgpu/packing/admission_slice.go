package packing

import (
	"slices"

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
	MemorySlices uint8  // bits of the device's memory slices that a MIG instance created on demand takes; 0: the slice always exists
	SMs          int
	Memory       share.Bytes
	Classes      []share.Isolation // what the node can enforce here
	Healthy      bool
	Reserve      share.PerMille // part of the window kept back for switching between sets
	MaxShares    int
}

// checkTerms returns which of the pod's terms the slice does not meet (kind of slice, GPU model, health), or Admitted.
func (s *Slice) checkTerms(t share.Terms) Refusal {
	switch {
	case !s.matchesKind(t.Slice):
		return WrongKind
	case len(t.Models) > 0 && !slices.Contains(t.Models, s.Model):
		return WrongModel
	case !s.Healthy:
		return Unhealthy
	}
	return Admitted
}

// matchesKind reports whether the slice is of the requested kind: a whole GPU (the default), any MIG instance, or the name of a MIG
// profile.
func (s *Slice) matchesKind(kind string) bool {
	switch kind {
	case share.WholeGPU, "":
		return s.Profile == ""
	case share.AnyMIG:
		return s.Profile != ""
	}
	return s.Profile == kind
}

// classFor returns the best isolation class for the share that the slice can enforce. If it can enforce none, classFor returns the best
// class anyway, and whether the pod accepts best-effort enforcement.
func (s *Slice) classFor(sh share.Share, t share.Terms) (share.Isolation, bool) {
	wanted := acceptableClasses(sh, t.Isolation)
	for _, class := range wanted {
		if slices.Contains(s.Classes, class) {
			return class, true
		}
	}
	// Best-effort enforcement runs anyway; the node's enforcement status says what is missing.
	return wanted[0], t.Enforcement == share.BestEffortEnforcement
}

// The results of acceptableClasses, which are never modified.
var (
	elasticOnly    = []share.Isolation{share.Elastic}
	mpsOnly        = []share.Isolation{share.MPS}
	exclusiveOrMPS = []share.Isolation{share.Exclusive, share.MPS}
)

// acceptableClasses returns the isolation classes that can serve a share, the best first. Class swap is refused before this point.
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
