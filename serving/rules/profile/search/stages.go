package search

import (
	"cmp"
	"slices"

	"github.com/gshare-dev/gshare/serving/rules/profile"
	"github.com/gshare-dev/gshare/vgpu/mig"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// Stages is a strategy that measures every stage of a split model on every size of MIG slice (FluidFaaS, section 5.2.1), except slices
// whose memory is known to be too small.
type Stages struct {
	Stages int // number of stages; they are numbered from 1
	Slices []mig.Profile
	Batch  int
	Device string
}

const maxStages = 1024

// Next returns the next setting to measure. It iterates over the stages and, for each, over the slices from the largest memory down: on
// the largest the stage is most likely to run, which measures its memory use.
func (s Stages) Next(history []Trial) (Setting, bool, error) {
	tried, err := index(s, history)
	if err != nil {
		return Setting{}, false, err
	}
	for stage := 1; stage <= s.Stages; stage++ {
		if next, more := tried.firstUntried(s.settings(stage, tried)); more {
			return next, true, nil
		}
	}
	return Setting{}, false, nil
}

// settings returns the settings of a stage on the slices that may have enough memory, the largest first.
func (s Stages) settings(stage int, tried results) []Setting {
	var settings []Setting
	bySize := slices.SortedStableFunc(slices.Values(s.Slices), func(a, b mig.Profile) int { return cmp.Compare(b.MemoryGB, a.MemoryGB) })
	for _, slice := range bySize {
		if !s.tooSmall(stage, slice, tried) {
			settings = append(settings, s.setting(stage, slice))
		}
	}
	return settings
}

// tooSmall reports whether a slice cannot hold a stage: the stage used more memory in some trial than the slice has, or failed on a slice
// with at least as much.
func (s Stages) tooSmall(stage int, slice mig.Profile, tried results) bool {
	for _, other := range s.Slices {
		trial, ran := tried[s.setting(stage, other)]
		if !ran || other.Name == slice.Name {
			continue
		}
		if trial.Failed && other.MemoryGB >= slice.MemoryGB || trial.Point.Memory > profileMemory(slice) {
			return true
		}
	}
	return false
}

func (s Stages) setting(stage int, slice mig.Profile) Setting {
	return Setting{Stage: stage, Resource: profile.Resource{Slice: slice.Name, Device: s.Device}, Batch: s.Batch}
}

// profileMemory returns the memory in bytes that a MIG profile's name states. The driver reports a little less.
func profileMemory(slice mig.Profile) share.Bytes { return share.Bytes(slice.MemoryGB) << 30 }

func (s Stages) validate() error {
	switch {
	case s.Stages < 1 || s.Stages > maxStages:
		return share.Invalid("stages", "%d is outside 1 to %d", s.Stages, maxStages)
	case len(s.Slices) == 0:
		return share.Invalid("slices", "there are none")
	}
	for _, slice := range s.Slices {
		if slice.Name == "" || slice.MemoryGB < 1 {
			return share.Invalid("slices", "%.64q with %d GB is none", slice.Name, slice.MemoryGB)
		}
	}
	return checkBatch(s.Batch)
}
