// Package mig describes where instances can be placed on a GPU in MIG mode, and chooses for a new instance the placement that keeps the
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

// sliceRange returns the set of n memory slices that begins with slice start.
func sliceRange(start, n int) Slices { return Slices(1<<n-1) << start }

// Profile is a MIG profile: a kind of GPU instance that the driver can create, with its size and legal placements.
type Profile struct {
	Name     string // as the driver names it, such as 1g.10gb
	Compute  int    // compute slices
	Memory   int    // memory slices
	MemoryGB int    // as in the name; the usable memory is a little less
	MiB      int    // of usable memory as the driver reports it; 0: unknown
	SMs      int    // streaming multiprocessors; 0: unknown, to be read from the driver
	Media    bool   // has the media engines (+me); a GPU has one set of them
	Starts   []int  // first memory slices of its legal placements, ascending
}

// slicesAt returns the memory slices that an instance of the profile occupies if start is its first.
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

// models lists the known GPU models. Their placements are those that nvidia-smi mig -lgipp lists, which are the same on all GPUs with eight
// memory slices; the names of profiles are those on NVIDIA's page of supported profiles. FluidFaaS's table lacks the double-memory and +me
// profiles, and it counts instances per profile although only placements determine what fits (U20).
var models = []*Model{
	sevenSliceModel("A100-40GB", []int{5, 10, 10, 20, 20, 40}, []int{14, 14, 28, 42, 56, 98}),
	sevenSliceModel("A100-80GB", []int{10, 20, 20, 40, 40, 80}, []int{14, 14, 28, 42, 56, 98}),
	fourSliceModel("A30-24GB", []int{6, 12, 24}, []int{14, 28, 56}),
	sevenSliceModel("H100-80GB", []int{10, 20, 20, 40, 40, 80}, []int{16, 26, 32, 60, 64, 132}),
	sevenSliceModel("H100-94GB", []int{12, 24, 24, 47, 47, 94}, make([]int, 6)),
	sevenSliceModel("H200-141GB", []int{18, 35, 35, 71, 71, 141}, make([]int, 6)),
	sevenSliceModel("B200-180GB", []int{23, 45, 45, 90, 90, 180}, make([]int, 6)),
}

// sevenSliceModel returns a GPU model with seven compute and eight memory slices. gb and sms are the memory and the SMs of the profiles 1g,
// 1g with double memory, 2g, 3g, 4g and 7g.
func sevenSliceModel(name string, gb, sms []int) *Model {
	anywhere := []int{0, 1, 2, 3, 4, 5, 6}
	return nameProfiles(&Model{Name: name, Compute: 7, Memory: 8, Profiles: []Profile{
		{Compute: 1, Memory: 1, MemoryGB: gb[0], SMs: sms[0], Starts: anywhere},
		{Compute: 1, Memory: 1, MemoryGB: gb[0], SMs: sms[0], Starts: anywhere, Media: true},
		{Compute: 1, Memory: 2, MemoryGB: gb[1], SMs: sms[1], Starts: []int{0, 2, 4, 6}},
		{Compute: 2, Memory: 2, MemoryGB: gb[2], SMs: sms[2], Starts: []int{0, 2, 4}},
		{Compute: 3, Memory: 4, MemoryGB: gb[3], SMs: sms[3], Starts: []int{0, 4}},
		{Compute: 4, Memory: 4, MemoryGB: gb[4], SMs: sms[4], Starts: []int{0}},
		{Compute: 7, Memory: 8, MemoryGB: gb[5], SMs: sms[5], Starts: []int{0}},
	}})
}

// fourSliceModel returns a GPU model with four compute and four memory slices. gb and sms are the memory and the SMs of the profiles 1g, 2g
// and 4g.
func fourSliceModel(name string, gb, sms []int) *Model {
	anywhere, halves := []int{0, 1, 2, 3}, []int{0, 2}
	return nameProfiles(&Model{Name: name, Compute: 4, Memory: 4, Profiles: []Profile{
		{Compute: 1, Memory: 1, MemoryGB: gb[0], SMs: sms[0], Starts: anywhere},
		{Compute: 1, Memory: 1, MemoryGB: gb[0], SMs: sms[0], Starts: anywhere, Media: true},
		{Compute: 2, Memory: 2, MemoryGB: gb[1], SMs: sms[1], Starts: halves},
		{Compute: 2, Memory: 2, MemoryGB: gb[1], SMs: sms[1], Starts: halves, Media: true},
		{Compute: 4, Memory: 4, MemoryGB: gb[2], SMs: sms[2], Starts: []int{0}},
	}})
}

// nameProfiles sets the names of the model's MIG profiles from their sizes, and returns the model.
func nameProfiles(m *Model) *Model {
	for i := range m.Profiles {
		p := &m.Profiles[i]
		p.Name = fmt.Sprintf("%dg.%dgb", p.Compute, p.MemoryGB)
		if p.Media {
			p.Name += "+me"
		}
	}
	return m
}
