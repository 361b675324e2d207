package search

import (
	"slices"

	"github.com/gshare-dev/gshare/serving/rules/profile"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// Grid is a strategy that measures all combinations of quota, SM share and batch size, as FaST-GShare does. A trial's quota limit is its
// quota request. PAMBA's GPU model is fitted to the points with all SMs.
type Grid struct {
	SM, Quota []share.PerMille
	Batches   []int
	Device    string
}

// FaSTGrid returns the grid that FaST-GShare measures (section 5.2): 5 quotas with 7 SM shares.
func FaSTGrid(device string, batch int) Grid {
	return Grid{
		SM:      []share.PerMille{60, 120, 240, 500, 600, 800, 1000},
		Quota:   []share.PerMille{200, 400, 600, 800, 1000},
		Batches: []int{batch},
		Device:  device,
	}
}

// Next returns the next setting to measure, and false if there is none. SM shares change the slowest, then quotas, from the largest down: a running
// process can be given another batch size, and a smaller quota than it started with, but keeps its SMs.
func (g Grid) Next(history []Trial) (Setting, bool, error) {
	tried, err := index(g, history)
	if err != nil {
		return Setting{}, false, err
	}
	s, more := tried.firstUntried(g.settings())
	return s, more, nil
}

func (g Grid) settings() []Setting {
	var all []Setting
	quotas := slices.Sorted(slices.Values(g.Quota))
	slices.Reverse(quotas)
	for _, sm := range g.SM {
		for _, quota := range quotas {
			for _, batch := range g.Batches {
				all = append(all, Setting{Resource: profile.Resource{SM: sm, Quota: quota, Device: g.Device}, Batch: batch})
			}
		}
	}
	return all
}

func (g Grid) validate() error {
	if len(g.SM) == 0 || len(g.Quota) == 0 || len(g.Batches) == 0 {
		return share.Invalid("sm, quota, batches", "%d x %d x %d values make no grid", len(g.SM), len(g.Quota), len(g.Batches))
	}
	for _, sm := range g.SM {
		if err := checkPart("sm", sm); err != nil {
			return err
		}
	}
	for _, quota := range g.Quota {
		if err := checkPart("quota", quota); err != nil {
			return err
		}
	}
	return checkBatches(g.Batches)
}
