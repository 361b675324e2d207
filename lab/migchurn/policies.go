package migchurn

import (
	"fmt"
	"slices"

	"github.com/gshare-dev/gshare/vgpu/mig"
)

// Policies lists the names that PolicyNamed accepts.
var Policies = []string{"gradient", "remaining", "laststart", "bestfit", "firstfit", "static"}

// PolicyNamed returns a new policy with the given name for GPUs of a model, or an error.
func PolicyNamed(name string, m *mig.Model) (Policy, error) {
	switch name {
	case "gradient":
		return Gradient(m), nil
	case "remaining":
		return Remaining(m), nil
	case "laststart":
		return LastStart, nil
	case "bestfit":
		return BestFit, nil
	case "firstfit":
		return FirstFit, nil
	case "static":
		return Static(m), nil
	}
	return nil, fmt.Errorf("no policy is called %.64q", name)
}

// Gradient returns gshare's own policy, that of mig.Chooser.
func Gradient(m *mig.Model) Policy {
	chooser := mig.NewChooser(m)
	return func(gpus []mig.Layout, p *mig.Profile) (int, mig.Instance, bool) {
		gpu, start, ok := chooser.Choose(gpus, p)
		return gpu, mig.Instance{Profile: p, Start: start}, ok
	}
}

// Remaining returns a Policy that keeps the largest number of start positions at which instances can still be created, summed over all GPUs
// and profiles.
func Remaining(m *mig.Model) Policy {
	var places [256]int
	for s := range places {
		for _, room := range m.Available(mig.Layout{Used: mig.Slices(s), Media: true}) {
			places[s] += len(room.Starts)
		}
	}
	return func(gpus []mig.Layout, p *mig.Profile) (gpu int, made mig.Instance, ok bool) {
		var least int
		for g, l := range gpus {
			for _, start := range l.Starts(p) {
				i := mig.Instance{Profile: p, Start: start}
				if lost := places[l.Used] - places[l.With(i).Used]; !ok || lost < least {
					gpu, made, ok, least = g, i, true, lost
				}
			}
		}
		return gpu, made, ok
	}
}

// FirstFit is a Policy that takes the first GPU on which the instance can be created, at its first start position.
func FirstFit(gpus []mig.Layout, p *mig.Profile) (int, mig.Instance, bool) {
	for g, l := range gpus {
		for _, start := range p.Starts {
			if made := (mig.Instance{Profile: p, Start: start}); l.Fits(made) {
				return g, made, true
			}
		}
	}
	return 0, mig.Instance{}, false
}

// BestFit is a Policy that takes the GPU with the fewest free memory slices on which the instance can be created, at its first start
// position.
func BestFit(gpus []mig.Layout, p *mig.Profile) (int, mig.Instance, bool) {
	return onFullest(gpus, p, p.Starts)
}

// LastStart is a Policy that takes the same GPU as BestFit, but the last start position, because the first positions serve more profiles.
func LastStart(gpus []mig.Layout, p *mig.Profile) (int, mig.Instance, bool) {
	starts := slices.Clone(p.Starts)
	slices.Reverse(starts)
	return onFullest(gpus, p, starts)
}

func onFullest(gpus []mig.Layout, p *mig.Profile, starts []int) (gpu int, made mig.Instance, ok bool) {
	used := -1
	for g, l := range gpus {
		if l.Used.Len() <= used {
			continue
		}
		for _, start := range starts {
			if i := (mig.Instance{Profile: p, Start: start}); l.Fits(i) {
				gpu, made, ok, used = g, i, true, l.Used.Len()
				break
			}
		}
	}
	return gpu, made, ok
}

// Static returns a Policy that never creates instances on demand. Every GPU is partitioned once, by halves, which on a GPU of seven
// compute slices is FluidFaaS's partition 4g, 2g, 1g. A request takes the smallest free instance that is large enough.
func Static(m *mig.Model) Policy {
	pieces := halvedGPU(m)
	return func(gpus []mig.Layout, p *mig.Profile) (int, mig.Instance, bool) {
		for _, piece := range pieces {
			if piece.Profile.Compute < p.Compute || piece.Profile.Memory < p.Memory {
				continue
			}
			for g, l := range gpus {
				if l.Fits(piece) {
					return g, piece, true
				}
			}
		}
		return 0, mig.Instance{}, false
	}
}

// halvedGPU returns the instances of a GPU that is partitioned by halves (4g, 2g, 1g for seven compute slices), the smallest first.
func halvedGPU(m *mig.Model) []mig.Instance {
	var l mig.Layout
	var pieces []mig.Instance
	for compute := (m.Compute + 1) / 2; compute > 0; compute /= 2 {
		p := smallestProfile(m, compute)
		for starts := l.Starts(p); len(starts) > 0; starts = l.Starts(p) {
			piece := mig.Instance{Profile: p, Start: starts[0]}
			l, pieces = l.With(piece), append(pieces, piece)
		}
	}
	slices.Reverse(pieces)
	return pieces
}
