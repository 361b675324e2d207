// Package mig describes the legal placements of instances on a GPU in MIG mode, and chooses the placement of a new instance that leaves the
// free slices most useful for later ones. Existing instances are never moved or changed.
package mig

import (
	"fmt"
	"math/bits"
)

// Slices is a set of memory slices of one GPU: bit i is memory slice i. No GPU has more than eight.
type Slices uint8

// Len returns the number of slices in the set.
func (s Slices) Len() int { return bits.OnesCount8(uint8(s)) }

// sliceRange returns the set of n memory slices from start on.
func sliceRange(start, n int) Slices { return Slices(1<<n-1) << start }

// Profile is a MIG profile: a size of GPU instance that the driver can create, with its legal placements.
type Profile struct {
	Name     string // the driver's, such as 1g.10gb
	Compute  int    // compute slices
	Memory   int    // memory slices
	MemoryGB int    // as in the name; the usable memory is a little less
	MiB      int    // of usable memory as the driver reports it; 0: unknown
	SMs      int    // streaming multiprocessors; 0: unknown, to be read from the driver
	Media    bool   // has the media engines (+me), of which a GPU has one set
	Starts   []int  // first memory slices of its legal placements, ascending
}

// slicesAt returns the memory slices that an instance of the profile occupies if it begins at the given one.
func (p *Profile) slicesAt(start int) Slices { return sliceRange(start, p.Memory) }

// Model is a GPU model with its MIG profiles.
type Model struct {
	Name     string // such as A100-80GB
	Compute  int    // compute slices
	Memory   int    // memory slices
	Profiles []Profile
}

// Profile returns the MIG profile with the given name, such as 1g.10gb, and whether there is one.
func (m *Model) Profile(name string) (*Profile, bool) {
	for i := range m.Profiles {
		if m.Profiles[i].Name == name {
			return &m.Profiles[i], true
		}
	}
	return nil, false
}

// ModelNamed returns the GPU model with the given name, such as A100-80GB, or an error if its placements are not known.
func ModelNamed(name string) (*Model, error) {
	for _, m := range models {
		if m.Name == name {
			return m, nil
		}
	}
	return nil, fmt.Errorf("no MIG placements are known for GPU model %.64q", name)
}

// Models returns the GPU models whose MIG placements are known.
func Models() []*Model { return models }
