package pipeline

import (
	"cmp"
	"maps"
	"slices"

	"github.com/gshare-dev/gshare/vgpu/mig"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// Kind is a kind of slice: a MIG profile, or a whole GPU.
type Kind struct {
	Name    string      `json:"name"`    // of the MIG profile, such as 1g.10gb
	Compute int         `json:"compute"` // compute slices
	Memory  share.Bytes `json:"memory"`
}

// KindOf returns the kind of a MIG profile, with the memory in its name. The driver reports slightly less.
func KindOf(p *mig.Profile) Kind {
	return Kind{Name: p.Name, Compute: p.Compute, Memory: share.Bytes(p.MemoryGB) << 30}
}

// Slice is one slice of a Kubernetes node. The stages of an instance may run on slices of different GPUs (FF-36), so the GPU is
// not recorded.
type Slice struct {
	ID   string `json:"id"`
	Kind Kind   `json:"kind"`
}

// validate reports the first invalid field.
func (k Kind) validate(field string) error {
	switch {
	case k.Name == "":
		return share.Invalid(field+".name", "is empty")
	case k.Compute < 1 || k.Compute > 64:
		return share.Invalid(field+".compute", "%d compute slices of %.64q is outside 1 to 64", k.Compute, k.Name)
	case k.Memory < 1 || k.Memory > share.MaxMemory:
		return share.Invalid(field+".memory", "%d of %.64q is outside 1 to %d bytes", k.Memory, k.Name, share.MaxMemory)
	}
	return nil
}

// Compare orders kinds from the smallest, by memory, then compute, then name. Small slices are used first, so that large ones
// stay free for functions that need them (U9).
func (k Kind) Compare(other Kind) int {
	return cmp.Or(cmp.Compare(k.Memory, other.Memory), cmp.Compare(k.Compute, other.Compute), cmp.Compare(k.Name, other.Name))
}

// sortedKeys returns the keys of a map in order.
func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
