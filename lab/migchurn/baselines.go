package migchurn

import (
	"slices"

	"github.com/gshare-dev/gshare/vgpu/mig"
)

// FirstFit takes the first GPU on which the instance can be created, at its first start position.
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

// BestFit takes the GPU with the fewest free memory slices on which the instance can be created, at its first start position.
func BestFit(gpus []mig.Layout, p *mig.Profile) (int, mig.Instance, bool) {
	return fullest(gpus, p, p.Starts)
}

// LastStart is BestFit with the last start position, because the first ones serve more profiles.
func LastStart(gpus []mig.Layout, p *mig.Profile) (int, mig.Instance, bool) {
	starts := slices.Clone(p.Starts)
	slices.Reverse(starts)
	return fullest(gpus, p, starts)
}

func fullest(gpus []mig.Layout, p *mig.Profile, starts []int) (gpu int, made mig.Instance, ok bool) {
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

// Static never creates instances on demand: every GPU is cut once, by halves, which is FluidFaaS's 4g, 2g, 1g on a GPU of seven
// compute slices (FF-38). A request takes the smallest free instance that holds it.
func Static(m *mig.Model) Policy {
	pieces := cut(m)
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

// cut returns the instances of a GPU that is cut by halves, the smallest first.
func cut(m *mig.Model) []mig.Instance {
	var l mig.Layout
	var pieces []mig.Instance
	for compute := (m.Compute + 1) / 2; compute > 0; compute /= 2 {
		p := plain(m, compute)
		for starts := l.Starts(p); len(starts) > 0; starts = l.Starts(p) {
			piece := mig.Instance{Profile: p, Start: starts[0]}
			l, pieces = l.With(piece), append(pieces, piece)
		}
	}
	slices.Reverse(pieces)
	return pieces
}
