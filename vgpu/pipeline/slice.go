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

// KindOf returns the kind of slice that a MIG profile makes, with the memory that the profile's name states. The driver reports slightly
// less.
func KindOf(p *mig.Profile) Kind {
	return Kind{Name: p.Name, Compute: p.Compute, Memory: share.Bytes(p.MemoryGB) << 30}
}

// Slice is one slice of a Kubernetes node. It does not record the GPU, because the stages of a pipeline may run on slices of different
// GPUs.
type Slice struct {
	ID   string `json:"id"`
	Kind Kind   `json:"kind"`
}

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

// Compare orders kinds of slices by memory, then compute slices, then name. Small slices are used first, so that large ones stay free for
// functions that need them.
func (k Kind) Compare(other Kind) int {
	return cmp.Or(cmp.Compare(k.Memory, other.Memory), cmp.Compare(k.Compute, other.Compute), cmp.Compare(k.Name, other.Name))
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
