package scaling

import (
	"cmp"
	"slices"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// Rate is a load or a throughput in requests per second.
type Rate float64

// Configuration is the share of a GPU that an instance can run on, with its throughput: the highest rate at which one such instance meets
// the SLO. In FaST-GShare's notation the throughput is T, and the SMs and the quota of the share are S and Q.
//
// Throughputs of instances can be added up while the requests of all shares on a slice fit the slice, which packing ensures. A caller
// that measures interference lowers the Throughput of the instances concerned.
type Configuration struct {
	Share      share.Share
	Batch      int // with which the throughput was measured
	Throughput Rate
}

// PerResource returns the throughput in requests per second divided by the fraction of a slice's SM-time that the share requests: T / (S
// x Q), which FaST-GShare calls RPR.
func (c Configuration) PerResource() Rate {
	return c.Throughput * Rate(share.WholeArea) / Rate(c.area())
}

func (c Configuration) area() share.Area { return c.Share.RequestArea() }

func (c Configuration) validate() error {
	for _, side := range []struct {
		field string
		part  share.PerMille
	}{{"sm", c.Share.SMRequest}, {"quota", c.Share.QuotaRequest}} {
		if side.part < 1 || side.part > share.Whole {
			return share.Invalid(side.field, "%d per-mille is outside 1 to %d", side.part, share.Whole)
		}
	}
	if !(c.Throughput > 0 && c.Throughput <= maxLoad) { // NaN too
		return share.Invalid("throughput", "%v requests/s is not above 0 and at most %v", float64(c.Throughput), float64(maxLoad))
	}
	return nil
}

func validateAll(choices []Configuration) error {
	if len(choices) == 0 {
		return unservable("choices", "there are none")
	}
	for _, c := range choices {
		if err := c.validate(); err != nil {
			return err
		}
	}
	return nil
}

// compareEfficiency orders configurations by ascending throughput per SM-time. Ties are broken by the share, so that the order is total.
func compareEfficiency(a, b Configuration) int {
	return cmp.Or(cmp.Compare(a.PerResource(), b.PerResource()), cmp.Compare(b.area(), a.area()), byShare(b, a))
}

func byShare(a, b Configuration) int {
	return cmp.Or(cmp.Compare(a.Share.SMRequest, b.Share.SMRequest), cmp.Compare(a.Share.Memory, b.Share.Memory), cmp.Compare(a.Batch, b.Batch))
}

// MostEfficient returns the configuration with the highest throughput per SM-time: p_eff in FaST-GShare's Algorithm 1, line 5.
func MostEfficient(choices []Configuration) (Configuration, error) {
	if err := validateAll(choices); err != nil {
		return Configuration{}, err
	}
	return slices.MaxFunc(choices, compareEfficiency), nil
}
