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
	Name    string      `json:"name"`    // as the driver writes it: 1g.10gb
	Compute int         `json:"compute"` // compute slices
	Memory  share.Bytes `json:"memory"`
}

// KindOf takes a MIG profile at its name: the driver reports a little less memory, and who knows it uses that.
func KindOf(p *mig.Profile) Kind {
	return Kind{Name: p.Name, Compute: p.Compute, Memory: share.Bytes(p.MemoryGB) << 30}
}

// Slice is one slice of a node. Stages of an instance may lie on slices of different GPUs (FF-36), so the GPU does not
// matter here.
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

// Compare orders kinds from the smallest, by memory before compute: what is not needed should stay free for others (U9).
func (k Kind) Compare(other Kind) int {
	return cmp.Or(cmp.Compare(k.Memory, other.Memory), cmp.Compare(k.Compute, other.Compute), cmp.Compare(k.Name, other.Name))
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
