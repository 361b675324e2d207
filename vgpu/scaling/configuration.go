package scaling

import (
	"cmp"
	"slices"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// Rate is a load or a throughput in requests per second.
type Rate float64

// Configuration is a choice for an instance: a share, and the highest rate at which one instance of it keeps the SLO
// (DI-83). FaST-GShare calls the rate T and the share's two sides S and Q (FG-90).
//
// Rates are added up over instances. That holds while the requests on a slice fit it, which packing sees to; a caller
// that measures interference all the same lowers the Throughput of the instances concerned (F12).
type Configuration struct {
	Share      share.Share
	Batch      int // with which the throughput was measured
	Throughput Rate
}

// PerResource is the throughput per whole slice of SM-time: T / (S x Q), FaST-GShare's RPR (FG-92).
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

// byEfficiency orders by RPR ascending (FG-95). Equal ones are ordered by the share, so that the order is one.
func byEfficiency(a, b Configuration) int {
	return cmp.Or(cmp.Compare(a.PerResource(), b.PerResource()), cmp.Compare(b.area(), a.area()), byShare(b, a))
}

func byShare(a, b Configuration) int {
	return cmp.Or(cmp.Compare(a.Share.SMRequest, b.Share.SMRequest), cmp.Compare(a.Share.Memory, b.Share.Memory), cmp.Compare(a.Batch, b.Batch))
}

// MostEfficient is p_eff: the choice of highest throughput per resource (Alg. 1, line 5).
func MostEfficient(choices []Configuration) (Configuration, error) {
	if err := validateAll(choices); err != nil {
		return Configuration{}, err
	}
	return slices.MaxFunc(choices, byEfficiency), nil
}
