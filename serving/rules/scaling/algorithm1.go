package scaling

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// ErrUnservable reports that no profiled configuration meets the function's SLO. Such a function is not scaled but reported to its owner.
var ErrUnservable = errors.New("no profiled configuration keeps the SLO") // F5

func unservable(field, format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrUnservable, share.Invalid(field, format, args...))
}

// negligibleRate is the missing throughput, in requests per second, below which no instance is added: one request in eleven days.
const negligibleRate Rate = 1e-6

// leastArea returns the configuration of the last instance to add, which serves the load r that is left over when the most efficient
// configuration has been repeated as often as the load fills it: among those with a throughput of at least r, the one with the least SM-time
// (SMs times quota); ties go to the lowest throughput. At least one of the choices has such a throughput: the most efficient one, which is
// returned if it needs the least SM-time.
func leastArea(r Rate, choices []Configuration) Configuration {
	enough := slices.DeleteFunc(slices.Clone(choices), func(c Configuration) bool { return c.Throughput < r })
	return slices.MinFunc(enough, func(a, b Configuration) int {
		return cmp.Or(cmp.Compare(a.area(), b.area()), cmp.Compare(a.Throughput, b.Throughput), byShare(a, b)) // F4, F6, F7
	})
}

// ScaleUp returns the configurations of the instances to add for a load that exceeds the present throughput by gap: as many copies of
// the most efficient configuration as the gap keeps fully busy, plus one for the remaining load (FaST-GShare,
// Algorithm 1, lines 4-12). It returns at most `most` configurations, and none if gap is not positive.
//
// Errors are *share.FieldError; if choices is empty they also wrap ErrUnservable.
func ScaleUp(gap Rate, choices []Configuration, most int) ([]Configuration, error) {
	efficient, err := MostEfficient(choices)
	if err != nil {
		return nil, err
	}
	if err := checkNumber("gap", gap); err != nil {
		return nil, err
	}
	if gap <= negligibleRate || most <= 0 { // F2, F3
		return nil, nil
	}
	whole := math.Floor(float64(gap / efficient.Throughput))
	if whole >= float64(most) {
		return slices.Repeat([]Configuration{efficient}, most), nil
	}
	added := slices.Repeat([]Configuration{efficient}, int(whole))
	// Rounding may put rest slightly outside [0, T_eff), where there may be no configuration that serves it.
	rest := min(gap-Rate(whole)*efficient.Throughput, Rate(math.Nextafter(float64(efficient.Throughput), 0)))
	if rest > negligibleRate {
		added = append(added, leastArea(rest, choices))
	}
	return added, nil
}

// ScaleDown returns how many instances to remove from the front of queue when the throughput of all instances exceeds the load by -gap
// (FaST-GShare, Algorithm 1, lines 13-21). queue holds the throughputs of the instances, least efficient first. ScaleDown stops at the
// first instance that the load needs, so that no instance is removed before a less efficient one.
func ScaleDown(gap Rate, queue []Rate) int {
	for n, throughput := range queue {
		if gap+throughput > 0 { // F1
			return n
		}
		gap += throughput
	}
	return len(queue)
}

func checkNumber(field string, r Rate) error {
	if math.IsNaN(float64(r)) || math.IsInf(float64(r), 0) {
		return share.Invalid(field, "%v requests/s is not a number", float64(r))
	}
	return nil
}

// Rate is a load or a throughput in requests per second.
type Rate float64

// Configuration is the share of a GPU that an instance can run on, with its throughput: the highest rate at which one such instance meets
// the SLO. In FaST-GShare's notation the throughput is T, and the SMs and the quota of the share are S and Q.
//
// Throughputs of instances may be added up as long as the requests of all shares on a slice together fit that slice, which packing
// ensures. A caller that measures interference lowers the Throughput of the instances concerned.
type Configuration struct {
	Share      share.Share
	Batch      int // batch size at which Throughput was measured
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
