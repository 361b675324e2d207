// Package mig knows where the instances of a partitioned GPU (MIG) may lie, and where a new one does least harm to those
// that come after it. Instances that run are never moved, changed or ended: what is free is all that is decided about.
package mig

import (
	"fmt"
	"math/bits"
)

// Slices is a set of the memory slices of one GPU: bit i is memory slice i. Eight fit every GPU that exists.
type Slices uint8

// Len is the number of slices in the set.
func (s Slices) Len() int { return bits.OnesCount8(uint8(s)) }

// from gives n slices that begin with slice start.
func from(start, n int) Slices { return Slices(1<<n-1) << start }

// Profile is a kind of GPU instance that the driver can create.
type Profile struct {
	Name     string // as the driver writes it: 1g.10gb
	Compute  int    // compute slices
	Memory   int    // memory slices
	MemoryGB int    // as in the name; the driver reports a little less
	MiB      int    // of memory that programs may use, as the driver says; 0 where it was not asked
	SMs      int    // streaming multiprocessors; 0 where no list of the driver's was at hand: ask the driver
	Media    bool   // has the media engines (+me), of which a GPU has one set to give
	Starts   []int  // the memory slices at which it may begin, ascending
}

// at gives the memory slices of an instance that begins at start.
func (p *Profile) at(start int) Slices { return from(start, p.Memory) }

// Model is a kind of GPU.
type Model struct {
	Name     string // such as A100-80GB
	Compute  int    // compute slices
	Memory   int    // memory slices
	Profiles []Profile
}

// Profile finds a profile by its name.
func (m *Model) Profile(name string) (*Profile, bool) {
	for i := range m.Profiles {
		if m.Profiles[i].Name == name {
			return &m.Profiles[i], true
		}
	}
	return nil, false
}

// ModelNamed finds a kind of GPU by its name, one of those that Models lists.
func ModelNamed(name string) (*Model, error) {
	for _, m := range models {
		if m.Name == name {
			return m, nil
		}
	}
	return nil, fmt.Errorf("no MIG placements are known for GPU model %.64q", name)
}

// Models lists the kinds of GPU whose placements are known.
func Models() []*Model { return models }
