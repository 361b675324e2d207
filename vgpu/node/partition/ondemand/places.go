package ondemand

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gshare-dev/gshare/vgpu/mig"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// place names a place of a GPU for good: compute slices, memory slices, start.
func place(uuid string, at mig.Instance) string {
	return fmt.Sprintf("%sc%dm%d.%d", prefix(uuid), at.Profile.Compute, at.Profile.Memory, at.Start)
}

// prefix begins the names of all places of a GPU.
func prefix(uuid string) string { return strings.TrimPrefix(uuid, "GPU-") + "." }

// places lists those of a GPU that is open, as far as its driver says how many SMs they have, in the order in which package mig
// chooses among equals.
func (g *device) places() (all []mig.Instance) {
	for i := range g.model.Profiles {
		p := &g.model.Profiles[i]
		if p.Media || p.SMs == 0 {
			continue
		}
		for _, start := range p.Starts {
			all = append(all, mig.Instance{Profile: p, Start: start})
		}
	}
	return all
}

// offers says that containers may come to the places of a profile.
func (g *device) offers(p *mig.Profile) bool {
	return len(g.Profiles) == 0 || slices.Contains(g.Profiles, p.Name)
}

// Missing lists the profiles that are to be offered on a GPU, once it is open, and of which it offers no place: its model has none, or
// only with media engines.
func (s *Source) Missing(uuid string) (profiles []string) {
	g := s.named(uuid)
	if g == nil || g.model == nil {
		return nil
	}
	all := g.places()
	return slices.DeleteFunc(slices.Clone(g.Profiles), func(name string) bool {
		return slices.ContainsFunc(all, func(at mig.Instance) bool { return at.Profile.Name == name })
	})
}

// Dropped lists the places that containers have of profiles that are not offered: nobody new may come to them.
func (s *Source) Dropped() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(s.holds), func(id string) bool {
		g := s.of(id)
		if g == nil || g.model == nil {
			return true
		}
		at, ok := g.find(id)
		return !ok || g.offers(at.Profile)
	})
}

// find gives the place of that name on a GPU that is open. It need not be offered: a container may have it since before.
func (g *device) find(id string) (at mig.Instance, ok bool) {
	for _, at := range g.places() {
		if place(g.UUID, at) == id {
			return at, true
		}
	}
	return at, false
}

// room is the memory slices of a place, bit by bit.
func room(i mig.Instance) uint8 { return uint8(mig.Layout{}.With(i).Used) }

// memory is what programs may use of an instance: what the driver says, or its part of the GPU's.
func memory(p *mig.Profile, all share.Bytes, m *mig.Model) share.Bytes {
	if p.MiB > 0 {
		return share.Bytes(p.MiB) * share.MiB
	}
	return all * share.Bytes(p.Memory) / share.Bytes(m.Memory)
}
