package packing

import (
	"slices"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// SliceID names a slice for good: the UUID of a GPU or of a MIG instance.
type SliceID string

// Slice is one isolation domain as its node's inventory describes it: a whole GPU or one MIG instance.
type Slice struct {
	ID        SliceID
	Device    string // UUID of the physical GPU
	Model     string // of the device, such as "A100"
	Profile   string // MIG profile; empty for a whole GPU
	Room      uint8  // memory slices of the device that it takes while it holds anything; 0: it takes from no other slice
	SMs       int
	Memory    share.Bytes
	Classes   []share.Isolation // what the node can enforce here
	Healthy   bool
	Reserve   share.PerMille // part of the window kept back for switching between sets
	MaxShares int
}

// offers says whether the slice is of a kind, model and health that the terms accept, and if not, why.
func (s *Slice) offers(t share.Terms) Refusal {
	switch {
	case !s.kindMatches(t.Slice):
		return WrongKind
	case len(t.Models) > 0 && !slices.Contains(t.Models, s.Model):
		return WrongModel
	case !s.Healthy:
		return Unhealthy
	}
	return Admitted
}

func (s *Slice) kindMatches(kind string) bool {
	switch kind {
	case share.WholeGPU, "":
		return s.Profile == ""
	case share.AnyMIG:
		return s.Profile != ""
	}
	return s.Profile == kind
}

// classFor picks the class under which the slice would serve the share, in the share's order of preference.
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

// The lists that acceptableClasses gives out; nobody changes them.
var (
	elasticOnly    = []share.Isolation{share.Elastic}
	mpsOnly        = []share.Isolation{share.MPS}
	exclusiveOrMPS = []share.Isolation{share.Exclusive, share.MPS}
)

// acceptableClasses lists the classes that satisfy a share, the best first. Swap is refused before a share gets here.
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
